// What E2B's own documentation shows first, with its SDK as published: the address and the key are all that is Atoll's.
import { Sandbox } from '@e2b/code-interpreter'

const sandbox = await Sandbox.create()
try {
  await sandbox.runCode('x = 1')
  const execution = await sandbox.runCode('x += 1; x')
  console.log(execution.text)

  const result = await sandbox.commands.run('echo "Hello from $USER"')
  process.stdout.write(result.stdout)

  await sandbox.files.write('/home/user/hello.txt', 'hello')
  console.log(await sandbox.files.read('/home/user/hello.txt'))
  console.log((await sandbox.files.list('/home/user')).map((entry) => entry.name))
} finally {
  await sandbox.kill()
}
