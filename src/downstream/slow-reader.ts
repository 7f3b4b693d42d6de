/**
 * How many milliseconds a caller that seems to take nothing of its answer is given. A system does not tell of each byte that was read: Linux does when
 * about 1.4 of the 4 MB that it may hold are free again, and a caller's may ask for more by the megabyte. This is the time for 4 MB at 20 kB a second.
 */
export const READ_MS = 200_000
