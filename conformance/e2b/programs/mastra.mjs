// Mastra's sandbox on E2B: its own life cycle, commands with output as it comes, and processes.
import assert from 'node:assert'
import { E2BSandbox } from '@mastra/e2b'

const sandbox = new E2BSandbox({ apiKey: process.env.E2B_API_KEY, timeout: 120_000, template: 'base' })
await sandbox.start()
try {
  const ran = await sandbox.executeCommand('sh', ['-c', 'echo out; echo bad >&2'])
  assert.deepStrictEqual([ran.stdout, ran.stderr, ran.exitCode], ['out\n', 'bad\n', 0])
  assert.strictEqual((await sandbox.executeCommand('sh', ['-c', 'exit 3'])).exitCode, 3)
  let heard = ''
  await sandbox.executeCommand('echo', ['streamed'], { onStdout: (text) => { heard += text } })
  assert.strictEqual(heard, 'streamed\n')
  const process_ = await sandbox.processes.spawn('cat')
  await process_.sendStdin('typed\n')
  while (!process_.stdout.includes('typed')) await new Promise((resolve) => setTimeout(resolve, 20))
  await process_.kill()
} finally {
  await sandbox.destroy()
}
console.log('works')
