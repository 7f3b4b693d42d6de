/** Every value of three fields; Node keeps only the first value, or joins them. */
export interface Head {
  readonly hosts: readonly string[]
  readonly authorization: readonly string[]
  readonly proofs: readonly string[]
}

/** Collects every `Host`, `Authorization` and `DPoP` value. */
export function readHead(rawHeaders: readonly string[]): Head {
  const hosts: string[] = []
  const authorization: string[] = []
  const proofs: string[] = []
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i]!
    if (name.length !== 4 && name.length !== 13) continue
    const lower = name.toLowerCase()
    if (lower === 'host') hosts.push(rawHeaders[i + 1]!)
    else if (lower === 'authorization') authorization.push(rawHeaders[i + 1]!)
    else if (lower === 'dpop') proofs.push(rawHeaders[i + 1]!)
  }
  return { hosts, authorization, proofs }
}
