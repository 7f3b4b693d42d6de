/** Access of others to the file of keys, and the right of its group to change it: that creates keys. */
export const ACCESS_BY_OTHERS = 0o027
/** The rights of these to change the file. */
export const CHANGES_BY_OTHERS = 0o022

/** Says which access there is, and how to end it. */
export const describeAccess = (file: string, mode: number): string =>
  `Others may read or change ${file} (mode ${(mode & 0o777).toString(8)}). Run: chmod g-w,o= ${file}`
