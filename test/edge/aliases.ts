import { words } from '../helpers/words.ts'

/** A spelling of a sync, and its fields. */
export type Spelling = string | { readonly line: string; readonly fields: readonly string[] }

/** The sync that the others may be aliases for. */
export const CANONICAL = '/sync/ab:cd'

/** Pairs of targets that sync the same connection. */
export const SAME: readonly (readonly [canonical: string, alias: Spelling])[] = [
  ...words(String.raw`
    /sync/ab:cd /sync/ab%3Acd /sync/ab%3acd /sync/%61b:cd /sync/%61%62%3A%63%64 /sync/AB:CD
    /sync/%41%42%3a%43%44 /SYNC/ab:cd /sYnC/aB:cD/ /%73ync/ab:cd /%53%59%4E%43/ab:cd /sync/ab:cd/ /v3/sync/ab:cd
    /v3/sync/ab:cd/ /V2.0/Sync/ab%3Acd /%20/sync/ab:cd /sync/ab:cd? /sync/ab:cd/? /sync/ab:cd?x=/../..//\;%2f%00
    /sync/ab:cd?_method=POST /sync/ab:cd?_method=DELETE http://api.example.com/sync/ab:cd
    HTTP://API.EXAMPLE.COM/sync/ab:cd https://api.example.com/v3/sync/ab%3Acd?x
    http://api.example.com./sync/ab:cd /%C5%BFync/ab:cd /v3/%C5%BFYNC/ab:cd
  `).map((alias) => [CANONICAL, alias] as const),
  ['/sync/a~b', '/sync/a%7Eb'],
  ...[
    'X-HTTP-Method-Override: POST',
    'X-HTTP-Method: post',
    'x_http_method_override: GET',
    'X.HTTP.Method.Override: GET',
  ].map((field) => [CANONICAL, { line: `POST ${CANONICAL}`, fields: [field] }] as const),
  ...[
    'X-Original-URL: /v3/other',
    'X-Rewrite-URL: /v3/other',
    'X-Forwarded-Host: other.example',
    'X-Forwarded-Prefix: /other',
  ].map((field) => [CANONICAL, { line: `POST ${CANONICAL}`, fields: [field] }] as const),
]

const around = (
  spellings: readonly string[],
  ...shapes: readonly ((spelling: string) => string)[]
): readonly string[] => spellings.flatMap((spelling) => shapes.map((shape) => shape(spelling)))

/** Spellings that servers parse differently: refused with 400 before any upstream. */
export const REFUSED: readonly Spelling[] = [
  // Fields by which frameworks replace the method.
  ...[
    'X-HTTP-Method-Override: GET',
    'X-HTTP-Method: PUT',
    'x-method-override: DELETE',
    'X-Method-Override: x',
    'X-HTTP-Method-Override: POST, GET',
    'X-HTTP-Method-Override: , GET',
  ].map((field) => ({ line: `POST ${CANONICAL}`, fields: [field] })),
  ...['X-HTTP-Method-Override: POST', 'X-HTTP-Method: POST', 'X-Method-Override: POST'].map((field) => ({
    line: `GET ${CANONICAL}`,
    fields: [field],
  })),
  // Ids that a framework or a database might treat as another id.
  ...[
    ...words(`
      /sync/ab:cd.json /sync/AB:CD.JSON /v3/sync/ab:cd.xml/ /sync/ab:cd%2Ehtml /sync/ab:cd%20.yml
      /sync/ab:cd.csv%20 /sync/ab:cd.json.xml /sync/ab:cd%20 /sync/%20ab:cd /sync/ab:cd%C2%A0
      /sync/ab:cd%E3%80%80 /sync/%EF%BD%81b:cd /sync/ab%EF%BC%9Acd /sync/%E2%93%90b:cd /sync/ab:cd%C2%AD
      /sync/ab:cd%E2%80%8B /sync/ab:cd%F3%A0%80%A0 /sync/ab%E2%80%8D:cd /sync/%EF%BB%BFab:cd
      /sync/ab:cd%EF%B8%8F /sync/ab:%C3%A7d /sync/%C3%A1b:cd /sync/a%CC%81b:cd /sync/ab:%C3%87D
      /sync/ab:c%C4%91 /sync/ab:c%C3%B0 /sync/%CD%A3b:cd /sync/ab:cd%E2%80%8B.json
      /sync/ab:cd.j%C2%ADs%C3%B6n /sync/caf%C3%A9 /sync/cafe%CC%81 /sync/caf%c3%a9 /sync/CAF%C3%89
      /sync/%E2%84%AA1 /sync/%C5%BF1 /sync/%C3%9F /sync/%E1%BA%9E /sync/%EF%AC%81 /sync/1%C2%B2
      /sync/%E2%91%A0 /sync/%D9%A1%D9%A2 /sync/1%CC%B62 /sync/%C3%98 /sync/%C5%81%C3%B3d%C5%BA
      /sync/%C3%86ro /sync/%D0%B5 /sync/%D1%91 /sync/%CF%83 /sync/%CF%82 /sync/%CE%A3 /sync/%C3%85
      /sync/%E2%84%AB /sync/%EA%B0%80 /sync/%E1%84%80%E1%85%A1 /sync/a!b /sync/a%21b
    `),
    "/sync/a'b",
    ...words(`
      /sync/a%27b /sync/a+b /sync/a%2Bb /sync/a%3Fb /sync/a%3fb /sync/a%23b /sync/A%23B /sync/...
      /sync/%2E%2e. /sync/ab:cd. /sync/ab.cd /sync/ab:cd.x /sync/ab:cd.v2 /sync/ab:cd.php /sync/ab:cd.php/
      /sync/.json /sync/(ab:cd) /sync/ab:cd(S) /sync/ab:cd+ /sync/ab:cd, /sync/ab:cd%E2%82%AC
      /sync/%D0%B0b:cd
    `),
  ],
  // Dot segments.
  ...around(
    ['.', '%2e', '%2E'],
    (dot) => `/${dot}/sync/ab:cd`,
    (dot) => `/sync/${dot}/ab:cd`,
    (dot) => `/sync/ab:cd/${dot}`,
    (dot) => `/sync/ab:cd/${dot}/`,
  ),
  ...around(
    ['..', '.%2e', '%2E.', '%2e%2E'],
    (dots) => `/${dots}/sync/ab:cd`,
    (dots) => `/v3/${dots}/sync/ab:cd`,
    (dots) => `/sync/x/${dots}/ab:cd`,
    (dots) => `/sync/ab:cd/x/${dots}`,
    (dots) => `/v3/other/${dots}/${dots}/sync/ab:cd`,
  ),
  ...words(String.raw`
    /..;/sync/ab:cd /v3/..;x=y/sync/ab:cd /.;/sync/ab:cd /sync/%252e/ab:cd /v3/%252e%252e/sync/ab:cd
    /v3/..%00/sync/ab:cd
  `),
  // Slashes.
  ...words(String.raw`
    //sync/ab:cd /sync//ab:cd /sync/ab:cd// ///sync/ab:cd //v3/sync/ab:cd //api.example.com/sync/ab:cd
    /v3//sync/ab:cd
  `),
  ...around(
    words(String.raw`
      %2f %2F %5c %5C \ %252f %255c %c0%af %e0%80%af %f0%80%80%af %c1%9c %u2215 %uff0f %%32%66 %25%32%66
    `),
    (slash) => `${slash}sync/ab:cd`,
    (slash) => `/${slash}sync/ab:cd`,
    (slash) => `/sync${slash}ab:cd`,
    (slash) => `/sync/${slash}ab:cd`,
    (slash) => `/sync/ab:cd${slash}`,
    (slash) => `/v3${slash}sync/ab:cd`,
  ),
  // Path parameters.
  ...around(
    [';', '%3b', '%3B', '%253b'],
    (semicolon) => `/sync/ab:cd${semicolon}`,
    (semicolon) => `/sync/ab:cd${semicolon}jsessionid=1`,
    (semicolon) => `/sync${semicolon}x/ab:cd`,
    (semicolon) => `/${semicolon}/sync/ab:cd`,
    (semicolon) => `/sync/ab:cd/${semicolon}x`,
  ),
  // Fragments.
  ...['/sync/ab:cd#', '/sync/ab:cd#x', '/sync/ab:cd?x#y', '/v3/other#/../../sync/ab:cd', '#/sync/ab:cd'],
  // Control characters, encoded or not.
  ...around(
    words(String.raw`
      %00 %01 %08 %09 %0a %0A %0b %0c %0d %0D%0A %1b %1f %7f %7F %c2%80 %C2%85 %c2%9f
    `),
    (control) => `/sync/ab:cd${control}`,
    (control) => `/sync${control}/ab:cd`,
  ),
  // Double encoding, and a percent sign for itself.
  ...words(String.raw`
    /sync/ab%253Acd /%2573ync/ab:cd /sync/%2561b:cd /sync/ab:cd%25 /sync/ab:cd%2500 /sync/ab%25%33%41cd
  `),
  // Broken percent-encodings, broken and overlong UTF-8.
  ...around(
    [
      '%',
      '%3',
      '%g1',
      '%1g',
      '%u0061',
      '%U0061',
      '% 41',
      ...words(`
        %-1 %+1 %0x1 %ff %fe %c3 %c3%28 %a9 %e2%84 %ed%a0%80 %ed%b0%80 %f4%90%80%80 %f5%80%80%80 %c1%a1
        %c1%a1b %e0%81%a1 %f0%80%81%a1 %f8%80%80%81%a1
      `),
    ].filter((broken) => !broken.includes(' ')),
    (broken) => `/sync/${broken}b:cd`,
    (broken) => `/sync/ab:cd${broken}`,
  ),
  // Characters that are not allowed raw in a path.
  ...['"', '<', '>', '^', '`', '{', '}', '|', '[', ']'].map((char) => `/sync/ab:cd${char}`),
  // Segments after a PHP front controller, in the path or in the query.
  ...around(
    ['index.php', 'INDEX.PHP', 'app_dev.Php', 'index%2ephp', 'index.%70hp', '.php'],
    (script) => `/${script}/sync/ab:cd`,
    (script) => `/${script}/v3/sync/ab:cd`,
    (script) => `/web/${script}/sync/ab:cd/`,
    (script) => `/sync/${script}/ab:cd`,
    (script) => `/${script}%3F/sync/ab:cd`,
    (script) => `/${script}?/sync/ab:cd`,
    (script) => `/web/${script}/?/sync/ab:cd?x`,
  ),
  ...['/?/sync/ab:cd', '/?/v3/sync/ab:cd?x=y', 'http://api.example.com?/sync/ab:cd'],
  ...words('/v3/x?/sync/ab:cd /v3/x%3F/sync/ab:cd /app%3f%2Fsync/ab:cd /app/index.php%3F/sync/ab:cd'),
  // Cookieless sessions of ASP.NET.
  ...around(
    ['(S(x))', '(a(x))', '(A(x)S(y)F(z))', '%28S%28x%29%29', '(S())'],
    (session) => `/${session}/sync/ab:cd`,
    (session) => `/sync/${session}/ab:cd`,
    (session) => `/v3/sync/${session}ab:cd`,
    (session) => `/sy${session}nc/ab:cd`,
    (session) => `/sync/ab:cd/${session}`,
  ),
  // Absolute forms and other shapes of a target.
  ...words(String.raw`
    http://other.example/sync/ab:cd http://u@api.example.com/sync/ab:cd http://u:p@api.example.com/sync/ab:cd
    http://api.example.com@other.example/sync/ab:cd http://other.example@api.example.com/sync/ab:cd
    http://api.example.com:8080/sync/ab:cd http://api.example.com:0/sync/ab:cd
    http://api.example.com:99999/sync/ab:cd http://api.example.com:x/sync/ab:cd
    http://api.example.com//sync/ab:cd http://api.example.com/../sync/ab:cd http://api.example.com\sync/ab:cd
    http://api.example.com;x/sync/ab:cd http://api.example.com#/sync/ab:cd http://api.example.com%2f/sync/ab:cd
    http:///sync/ab:cd http:/sync/ab:cd http:sync/ab:cd http://[::1/sync/ab:cd http://[::1]/sync/ab:cd
    ftp://api.example.com/sync/ab:cd ws://api.example.com/sync/ab:cd file:///sync/ab:cd javascript:/sync/ab:cd
    sync/ab:cd ./sync/ab:cd * */sync/ab:cd ?/sync/ab:cd @/sync/ab:cd \sync\ab:cd \\api.example.com\sync\ab:cd
    api.example.com:80 api.example.com/sync/ab:cd //%zz@b/
  `),
]

const other = (line: string, ...fields: string[]): Spelling => ({ line, fields })

/** Requests that differ from the sync in every server, and are allowed. */
export const ANOTHER: readonly Spelling[] = [
  ...words(`
    /sync/ab:ce /sync/ab:cd: /sync/ab-cd /sync/ab:cd/x /sync /sync/ /synch/ab:cd /v3/other/sync/ab:cd
    /?x=/sync/ab:cd /index.php?x=/sync/ab:cd /http:/sync/ab:cd/x
    /%D0%95ync/ab:cd /%EF%BD%93ync/ab:cd /s%C3%BDnc/ab:cd /sync%C2%AD/ab:cd
  `),
  ...['GET', 'PUT', 'PATCH', 'DELETE', 'HEAD'].map((method) => other(`${method} ${CANONICAL}`)),
  ...words(String.raw`
    X_HTTP_Method_Override X.HTTP.Method X-Original-Method
  `).map((name) => other(`GET ${CANONICAL}`, `${name}: POST`)),
  other(`GET ${CANONICAL}?_method=POST`),
  other(`PUT ${CANONICAL}?_method=POST`, 'X_HTTP_Method_Override: POST'),
  ...words(String.raw`
    X-Original-URL X-Rewrite-URL X-Original-URI X-Override-URL X_Original_URL x-rewrite_url X.Original.URL
    PATH_INFO Path-Info X-Path-Info X-Original-Path X-Replaced-Path X-HTTP-Path-Override X_HTTP.Path-Override
    X-Envoy-Original-Path Request-Uri X-Request-URI
  `).map((name) => other('POST /v3/other', `${name}: ${CANONICAL}`)),
  other(
    'POST /v3/other',
    `X-Forwarded-Uri: ${CANONICAL}`,
    `X-Forwarded-Path: ${CANONICAL}`,
    'X-Forwarded-Prefix: /sync',
  ),
  ...['SCRIPT_NAME', 'Script-Name', 'script.name', 'X-Script-Name', 'X_SCRIPT_NAME'].flatMap((name) => [
    other(`POST /a/b${CANONICAL}`, `${name}: /a/b`),
    other(`POST /a%2Db/x${CANONICAL}?y`, `${name}: /a-b/x`),
  ]),
  other('POST /ab:cd', 'X-Forwarded-Prefix: /sync', 'X-Script-Name: /sync'),
]
