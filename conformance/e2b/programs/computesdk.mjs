// ComputeSDK's provider for E2B: sandboxes, commands, files and snapshots through that library's own interface.
import assert from 'node:assert'
import { e2b } from '@computesdk/e2b'

const compute = e2b({ apiKey: process.env.E2B_API_KEY })
const sandbox = await compute.sandbox.create({ metadata: { made: 'by computesdk' }, envs: { COLOUR: 'green' } })
try {
  const ran = await sandbox.runCommand('echo "$COLOUR from $USER"; echo bad >&2; exit 3')
  assert.deepStrictEqual([ran.stdout, ran.stderr, ran.exitCode], ['green from user\n', 'bad\n', 3])
  const inFolder = await sandbox.runCommand('pwd', { cwd: '/tmp', env: { A: 'b' } })
  assert.strictEqual(inFolder.stdout, '/tmp\n')

  await sandbox.filesystem.mkdir('/home/user/d')
  await sandbox.filesystem.writeFile('/home/user/d/f.txt', 'content')
  assert.strictEqual(await sandbox.filesystem.readFile('/home/user/d/f.txt'), 'content')
  assert.deepStrictEqual((await sandbox.filesystem.readdir('/home/user/d')).map((entry) => entry.name), ['f.txt'])
  await sandbox.filesystem.remove('/home/user/d/f.txt')
  assert.strictEqual(await sandbox.filesystem.exists('/home/user/d/f.txt'), false)

  const again = await compute.sandbox.getById(sandbox.sandboxId)
  assert.strictEqual((await again.runCommand('ls -d /home/user/d')).stdout, '/home/user/d\n')
  assert.ok((await compute.sandbox.list()).some((one) => one.sandboxId === sandbox.sandboxId))
  assert.match(await sandbox.getUrl({ port: 8000, protocol: 'http' }), /^http:\/\/8000-[0-9a-z]+\./)

  const snapshot = await compute.snapshot.create(sandbox.sandboxId, { name: 'computesdk' })
  const copy = await compute.sandbox.create({ snapshotId: snapshot.id })
  assert.strictEqual((await copy.runCommand('ls -d /home/user/d')).stdout, '/home/user/d\n')
  await compute.sandbox.destroy(copy.sandboxId)
} finally {
  await compute.sandbox.destroy(sandbox.sandboxId)
}
console.log('works')
