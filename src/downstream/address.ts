/** What stands before an IPv4 address in an IPv6 one: of dual-stack sockets (RFC 4291), and of NAT64 (RFC 6052 section 2.1). */
const BEFORE_IPV4: ReadonlySet<string> = new Set(['0,0,0,0,0,65535', '100,65435,0,0,0,0'])

/** An address, as IPv4 where it is an IPv6 one that stands for that; what is no address stays as it is. */
export function plainAddress(address: string): string {
  const groups = ipv6Groups(address)
  if (groups === undefined || !BEFORE_IPV4.has(groups.slice(0, 6).join())) return address
  const [high, low] = groups.slice(6) as [number, number]
  return `${high >> 8}.${high & 255}.${low >> 8}.${low & 255}`
}

/** The eight groups of an IPv6 address; undefined of anything else. */
export function ipv6Groups(ip: string): readonly number[] | undefined {
  if (!ip.includes(':')) return undefined
  const [address] = ip.split('%', 1) as [string]
  const halves = address.split('::')
  if (halves.length > 2) return undefined
  const head = groupsOf(halves[0]!)
  const tail = groupsOf(halves[1] ?? '')
  if (head === undefined || tail === undefined) return undefined
  const missing = 8 - head.length - tail.length
  if (halves.length === 1 ? missing !== 0 : missing < 1) return undefined
  return [...head, ...Array.from({ length: missing }, () => 0), ...tail]
}

function groupsOf(half: string): number[] | undefined {
  const groups: number[] = []
  if (half === '') return groups
  for (const text of half.split(':')) {
    const dotted = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(text)
    if (dotted !== null) {
      const [a, b, c, d] = dotted.slice(1).map(Number) as [number, number, number, number]
      groups.push((a << 8) | b, (c << 8) | d)
    } else if (/^[0-9A-Fa-f]{1,4}$/.test(text)) groups.push(Number.parseInt(text, 16))
    else return undefined
  }
  return groups
}
