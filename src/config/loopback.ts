import { isIP } from 'node:net'

/** Is this host, an address without brackets or a name, reached from this machine alone? */
export function isLoopback(host: string): boolean {
  const plain = host.toLowerCase().replace(/^::ffff:(?=\d+\.)/, '')
  switch (isIP(plain)) {
    case 4:
      return plain.startsWith('127.')
    case 6:
      return /^(?:0{0,4}:){2,7}0{0,3}1$/.test(plain)
    default:
      return plain === 'localhost'
  }
}
