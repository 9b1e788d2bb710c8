// What the SDK without the code interpreter does in a first hour; runs with every line of the JavaScript SDK from 2.20 on.
import { CommandExitError, Sandbox } from 'e2b'

const sandbox = await Sandbox.create({ metadata: { quickstart: 'base' }, envs: { COLOUR: 'green' }, timeoutMs: 300_000 })
try {
  process.stdout.write((await sandbox.commands.run('echo $COLOUR from $USER')).stdout)
  await sandbox.commands.run('exit 3').catch((error) => {
    if (!(error instanceof CommandExitError)) throw error
    console.log('exit', error.exitCode)
  })
  await sandbox.files.write('/home/user/folder/note.txt', 'a note')
  console.log(await sandbox.files.read('/home/user/folder/note.txt'), (await sandbox.files.list('/home/user/folder')).map((entry) => entry.name))
  await (sandbox.pause ?? sandbox.betaPause).call(sandbox)
  const woken = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 300_000 })
  console.log(await woken.files.read('/home/user/folder/note.txt'))
} finally {
  await sandbox.kill()
}
