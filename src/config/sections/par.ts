import { issuer } from './addresses.ts'
import { choice, duration, list, section, size, text } from './values.ts'

/** What is enforced at the PAR endpoint. */
export const par = section({
  issuer: issuer().describe('The audience of assertions and request objects: the identity backend’s issuer.'),
  audiences: list(text('an audience'), 0, 'a list of audiences')
    .optional()
    .describe(
      'What the audience of an assertion may be, too; <issuer>/token and <issuer>/request, unless set.',
    ),
  assertionAudience: choice(['compatible', 'strict'])
    .default('compatible')
    .describe('strict takes assertions for the issuer alone (FAPI 2.0).'),
  leeway: duration('0s', '10m').prefault('10s').describe('How far clocks may differ.'),
  maxBody: size('1kB', '10MB').prefault('64kB').describe('Most bytes of a request to the PAR endpoint.'),
  unknownClients: choice(['forward', 'refuse'])
    .default('forward')
    .describe('What becomes of clients that are not listed under "clients".'),
})
  .transform(({ leeway, ...rest }) => ({ ...rest, leewayMs: leeway }))
  .describe('What the gateway itself enforces where a route says par.')
