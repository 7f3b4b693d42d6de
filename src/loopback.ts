import { isIP } from 'node:net'

/** True if this host, an address without brackets or a name, is reached from this machine alone. */
export function isLoopback(host: string): boolean {
  const plain = host.toLowerCase().replace(/^::ffff:(?=\d+\.)/, '')
  const version = isIP(plain)
  if (version === 4) return plain.startsWith('127.')
  return version === 6 ? /^(?:0{0,4}:){2,7}0{0,3}1$/.test(plain) : plain === 'localhost'
}
