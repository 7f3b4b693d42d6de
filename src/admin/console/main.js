import { hasToken, keepToken, watch } from './api.js'
import { chart } from './chart.js'
import { callerPage } from './caller.js'
import { callerTables, hrefOf } from './callers.js'
import { byId, write } from './dom.js'
import { duration, failures, time } from './format.js'
import { gatewayTables } from './gateway.js'
import { gatewaysTable } from './gateways.js'
import { describeOperator, setOperator } from './rights.js'
import { readiness, tiles, tilesOf } from './tiles.js'

/** @typedef {import('./api.js').Overview} Overview */

/** Address of the link to the problems of a rejected file. */
const REJECTED = '#reloads-title'
const showTiles = tiles(byId('tiles'))
const showCalls = chart(byId('calls'), 'Calls of the last five minutes', 60)
const showCallers = callerTables()
const showGateway = gatewayTables()
const showGateways = gatewaysTable()
const page = callerPage()
/** @type {Overview | undefined} */
let latest
/** @type {AbortController | undefined} */
let watching

/** Returns the caller in the address; undefined on the overview. */
function callerOfAddress() {
  const encoded = /^#caller\/(.+)$/.exec(location.hash)?.[1]
  try {
    return encoded === undefined ? undefined : decodeURIComponent(encoded)
  } catch {
    return undefined
  }
}

/** @param {Overview} overview */
function show(overview) {
  latest = overview
  setOperator(overview.operator)
  write(byId('operator'), describeOperator(overview.operator))
  const caller = callerOfAddress()
  write(byId('ready'), ...readiness(overview))
  byId('rejected').hidden = !overview.reloads[0]?.problems.length
  const self = overview.gateways.find((gateway) => gateway.self)
  if (self === undefined) return
  const { host, pid, startedAt, configuration } = self
  const { gateways, store } = overview.status
  const upSeconds = Math.max(1, (Date.parse(overview.at) - Date.parse(startedAt)) / 1000)
  const together =
    gateways === null || store.outage !== null
      ? ''
      : ` · ${gateways} ${gateways === 1 ? 'process counts' : 'processes count'} in Redis`
  write(byId('gateway'), `${host}, process ${pid}, up ${duration(upSeconds)}${together}`)
  const hash = configuration === null ? '' : ` · configuration ${configuration.slice(0, 12)}`
  write(byId('version'), `Sluice ${overview.version}${hash}`)
  write(byId('connection'), 'Live', 'live')
  document.body.classList.remove('stale')
  byId('denied').hidden = true
  const hasSignedIn = !byId('sign-in').hidden
  byId('sign-in').hidden = true
  byId('forget').hidden = !hasToken()
  byId('overview').hidden = caller !== undefined
  byId('caller').hidden = caller === undefined
  if (hasSignedIn) byId('main').focus()
  if (caller !== undefined) return page.show(overview)
  showTiles(tilesOf(overview))
  showGateways(overview)
  const { requests, refused, failed, until } = overview.activity
  showCalls({ calls: requests, refused, failed }, self, until)
  write(byId('failures'), ...failures(failed, until))
  showCallers(overview)
  showGateway(overview)
}

/** @param {string} why */
function lost(why) {
  const since = latest === undefined ? '' : ` This is the state of ${time(latest.at)}.`
  write(byId('connection'), `Connection lost; trying again. ${why}${since}`, 'refused')
  document.body.classList.add('stale')
}

/** @param {import('./api.js').HttpError} error */
function denied({ status, message }) {
  latest = undefined
  page.close()
  byId('overview').hidden = true
  byId('caller').hidden = true
  byId('forget').hidden = true
  write(byId('operator'), '')
  write(byId('connection'), 'Not connected', 'muted')
  if (status === 401) {
    write(byId('token-error'), hasToken() ? message : '')
    keepToken(undefined)
    byId('sign-in').hidden = false
    byId('token').focus()
  } else {
    write(byId('denied'), message)
    byId('denied').hidden = false
  }
}

function connect() {
  watching?.abort()
  watching = new AbortController()
  void watch(watching.signal, { show, lost, denied })
}

/** Opens the page of the address. */
function open() {
  const caller = callerOfAddress()
  document.title = caller === undefined ? 'Sluice' : `${caller} – Sluice`
  page.close()
  if (caller !== undefined) page.open(caller)
  if (latest !== undefined) show(latest)
}

window.addEventListener('hashchange', () => {
  open()
  if (location.hash === REJECTED) return byId('reloads-title').focus()
  scrollTo(0, 0)
  byId(callerOfAddress() === undefined ? 'main' : 'caller-name').focus({ preventScroll: true })
})
document.querySelector('.skip')?.addEventListener('click', (event) => {
  // The hash of the address selects the page.
  event.preventDefault()
  byId('main').focus()
})
byId('sign-in').addEventListener('submit', (event) => {
  event.preventDefault()
  const input = /** @type {HTMLInputElement} */ (byId('token'))
  keepToken(input.value.trim())
  input.value = ''
  open()
  connect()
})
byId('forget').addEventListener('click', () => {
  keepToken(undefined)
  connect()
})
byId('find').addEventListener('submit', (event) => {
  event.preventDefault()
  location.hash = hrefOf(/** @type {HTMLInputElement} */ (byId('find-caller')).value.trim())
})
// A hidden page asks for nothing.
document.addEventListener('visibilitychange', () => {
  watching?.abort()
  page.close()
  if (document.hidden) return
  connect()
  if (callerOfAddress() !== undefined) page.resume()
})

open()
connect()
