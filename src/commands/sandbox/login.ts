import type { IncomingMessage, ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import type { Provider } from 'oidc-provider'

/** Where the sandbox's own client is sent back to; the page shows what it got. */
export const CALLBACK = '/interaction/callback'

/** The pages that a user sees: a login that takes any name, and the client's page after it. Never rejects. */
export function createLogin(
  provider: Provider,
): (request: IncomingMessage, response: ServerResponse) => Promise<void> {
  return async (request, response) => {
    try {
      const url = new URL(request.url ?? '/', 'http://localhost')
      if (url.pathname === CALLBACK) {
        show(response, 200, callbackPage(url.searchParams))
        return
      }
      const { params, uid } = await provider.interactionDetails(request, response)
      if (request.method !== 'POST') {
        show(response, 200, loginPage(uid, params))
        return
      }
      const form = new URLSearchParams(await text(request))
      const result = form.has('cancel')
        ? { error: 'access_denied', error_description: 'The user cancelled.' }
        : { login: { accountId: form.get('user') || 'user-1' } }
      await provider.interactionFinished(request, response, result, { mergeWithLastSubmission: false })
    } catch (error) {
      show(response, 400, page('This login is over', `<p>${escape((error as Error).message)}</p>`))
    }
  }
}

function loginPage(uid: string, { client_id: client, scope }: Record<string, unknown>): string {
  return page(
    'Log in',
    `<p><b>${escape(client)}</b> asks for <b>${escape(scope ?? 'openid')}</b>.</p>
<form method="post" action="/interaction/${escape(uid)}">
<label>Who are you? <input name="user" value="user-1" autofocus></label>
<button>Log in and allow</button> <button name="cancel" value="1">Cancel</button>
</form>`,
  )
}

function callbackPage(answer: URLSearchParams): string {
  const rows = [...answer].map(([name, value]) => `<tr><td>${escape(name)}<td><code>${escape(value)}</code>`)
  return page(
    'Back at the client',
    `<p>The provider sent you back with:</p><table>${rows.join('\n')}</table>`,
  )
}

function page(title: string, body: string): string {
  return `<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${title}</title>
<style>body{font:16px/1.5 system-ui;max-width:36rem;margin:3rem auto;padding:0 1rem}td{padding-right:1rem;vertical-align:top}code{word-break:break-all}</style>
<h1>${title}</h1>
${body}
</html>
`
}

function show(response: ServerResponse, status: number, html: string): void {
  if (response.headersSent) {
    response.destroy()
    return
  }
  response.writeHead(status, {
    'Content-Type': 'text/html; charset=utf-8',
    'Cache-Control': 'no-store',
    'Content-Security-Policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
  })
  response.end(html)
}

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#39;',
}

function escape(value: unknown): string {
  return String(value).replace(/[&<>"']/g, (char) => ENTITIES[char]!)
}
