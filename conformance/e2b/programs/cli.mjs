// E2B's own command line: sandboxes are made, listed, asked, paused, resumed and killed; templates are listed.
import assert from 'node:assert'
import { spawnSync } from 'node:child_process'

function e2b(...words) {
  const ran = spawnSync('node_modules/.bin/e2b', words, { encoding: 'utf8', timeout: 120_000 })
  assert.strictEqual(ran.status, 0, `e2b ${words.join(' ')}: ${ran.stdout}${ran.stderr}`)
  return ran.stdout
}

const id = e2b('sandbox', 'create', '--detach', 'base').match(/[0-9a-z]{26}/)[0]
try {
  const running = JSON.parse(e2b('sandbox', 'list', '--format', 'json'))
  assert.ok(running.some((one) => one.sandboxId === id && one.state === 'running'), JSON.stringify(running))
  assert.strictEqual(e2b('sandbox', 'exec', '--env', 'A=b $c', id, 'printenv', 'A').trim(), 'b $c')
  assert.strictEqual(e2b('sandbox', 'exec', '--cwd', '/tmp', '--user', 'root', id, 'sh', '-c', 'pwd; whoami').trim(), '/tmp\nroot')
  assert.match(e2b('sandbox', 'info', id), new RegExp(id))
  e2b('sandbox', 'metrics', id)
  e2b('sandbox', 'pause', id)
  const paused = JSON.parse(e2b('sandbox', 'list', '--state', 'paused', '--format', 'json'))
  assert.ok(paused.some((one) => one.sandboxId === id), JSON.stringify(paused))
  e2b('sandbox', 'resume', id)
  assert.strictEqual(e2b('sandbox', 'exec', id, 'echo', 'again').trim(), 'again')
  const templates = JSON.parse(e2b('template', 'list', '--format', 'json'))
  assert.ok(templates.some((one) => one.templateID === 'python' && one.buildStatus === 'ready'), JSON.stringify(templates))
} finally {
  e2b('sandbox', 'kill', id)
}
assert.ok(!e2b('sandbox', 'list', '--format', 'json').includes(id))
console.log('works')
