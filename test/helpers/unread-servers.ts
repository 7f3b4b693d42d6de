import { spawn } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { closeLater } from './closing.ts'
import { createFolder } from './folder.ts'
import { withTests } from './process.ts'
import { freePort } from './ports.ts'
import { until } from './wait.ts'

/** Answers each request with its target, and one to `/refused` with 403. Reads no body. */
const PYTHON = `
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Unread(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'

    def answer(self):
        body = self.path.encode()
        self.send_response(403 if self.path == '/refused' else 200)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_PROPFIND = do_QUERY = answer

ThreadingHTTPServer(('127.0.0.1', int(sys.argv[1])), Unread).serve_forever()
`

/** The same; \`get_request(1)\` returns after the head. */
const PERL = `
use HTTP::Daemon;
my $daemon = HTTP::Daemon->new(LocalAddr => '127.0.0.1', LocalPort => $ARGV[0], ReuseAddr => 1) or die;
$SIG{CHLD} = 'IGNORE';
$| = 1;
while (my $connection = $daemon->accept) {
  next if fork;
  while (my $request = $connection->get_request(1)) {
    my ($method, $target) = ($request->method, $request->uri->as_string);
    print STDERR "\\"$method $target HTTP/1.1\\"\\n";
    my $status = $target eq '/refused' ? 403 : 200;
    my $response = HTTP::Response->new($status, 'OK', ['Content-Length' => length $target]);
    $response->content($target) unless $method eq 'HEAD';
    $connection->send_response($response);
  }
  exit;
}
`

/** A server that does not read bodies, and keeps its connections. */
export interface UnreadServer {
  readonly url: string
  /** Returns the request lines that it has obeyed, such as `GET /x`. */
  served(): string[]
}

/** The commands of the servers, by their names. They log each request, with its line in quotes, to `log` or standard error. */
const SERVERS = {
  'http.server of Python': (port: number, folder: string) => {
    writeFileSync(join(folder, 'server.py'), PYTHON)
    return ['python3', join(folder, 'server.py'), String(port)]
  },
  'HTTP::Daemon of Perl': (port: number, folder: string) => {
    writeFileSync(join(folder, 'server.pl'), PERL)
    return ['perl', join(folder, 'server.pl'), String(port)]
  },
  webfs: (port: number, folder: string) => {
    for (const name of ['x', 'last', 'secret']) writeFileSync(join(folder, name), `/${name}`)
    const log = join(folder, 'log')
    return ['webfsd', '-F', '-i', '127.0.0.1', '-p', String(port), '-r', folder, '-L', log]
  },
}

export type UnreadServerName = keyof typeof SERVERS

/** Starts a real server that leaves bodies unread. It has `/x`, `/last` and `/secret`, and answers with that text. */
export async function startUnreadServer(name: UnreadServerName): Promise<UnreadServer> {
  const folder = createFolder()
  const port = await freePort()
  const [command, ...args] = SERVERS[name](port, folder)
  const child = withTests(spawn(command!, args, { stdio: ['ignore', 'ignore', 'pipe'] }))
  let log = ''
  child.stderr.on('data', (data: Buffer) => (log += data.toString()))
  child.on('error', (error) => (log += error.message))
  closeLater(() => child.kill('SIGKILL'))
  const url = `http://127.0.0.1:${port}`
  await until(`${name} serves (npm run setup installs it)`, () =>
    fetch(`${url}/x`, { headers: { connection: 'close' } }).then(Boolean, () => false),
  )
  const text = () => (name === 'webfs' ? readFileSync(join(folder, 'log'), 'utf8') : log)
  return {
    url,
    served: () => [...text().matchAll(/"([A-Z]+ \S+) HTTP/g)].map(([, line]) => line!),
  }
}
