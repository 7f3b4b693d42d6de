/** A client id without what a database may not compare it by: case, width and the like, blanks, and what is not seen. */
export function plainId(id: string): string {
  return id
    .normalize('NFKC')
    .replaceAll(/[\s\p{C}\p{Default_Ignorable_Code_Point}\u2800\uFFFC\uFFFD]/gu, '')
    .toUpperCase()
    .toLowerCase()
}
