/*
 * gvisor-sentry-prewarmer: grows the descriptor table, then becomes the sentry.
 *
 * The sentry moves its stdio to descriptors 253 to 255. A process starts with a
 * table of 64, and growing it in a process with several threads, as any Go
 * program is by then, waits for an RCU grace period: more than 10 ms. Here there
 * is one thread, so growing costs nothing, and the size survives exec.
 *
 * runsc calls it as: gvisor-sentry-prewarmer BINARY ARGV0 [ARG...]
 * Freestanding, without a C library: it must cost next to nothing itself.
 */

#define LAST_STDIO_DESCRIPTOR 255

#define F_DUPFD_CLOEXEC 1030
#define EXIT_USAGE 64
#define EXIT_CANNOT_EXECUTE 126

#if defined(__x86_64__)

#define SYS_write 1
#define SYS_close 3
#define SYS_execve 59
#define SYS_fcntl 72
#define SYS_exit_group 231

__asm__(".globl _start\n"
        "_start:\n"
        "  xor %ebp, %ebp\n"
        "  mov %rsp, %rdi\n"
        "  and $-16, %rsp\n"
        "  call prewarm\n"
        "  hlt\n");

static long system_call(long number, long a, long b, long c) {
  long result;
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "a"(number), "D"(a), "S"(b), "d"(c)
                   : "rcx", "r11", "memory");
  return result;
}

#elif defined(__aarch64__)

#define SYS_fcntl 25
#define SYS_close 57
#define SYS_write 64
#define SYS_exit_group 94
#define SYS_execve 221

__asm__(".globl _start\n"
        "_start:\n"
        "  mov x29, #0\n"
        "  mov x0, sp\n"
        "  bl prewarm\n"
        "  brk #1\n");

static long system_call(long number, long a, long b, long c) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}

#else
#error "this processor is not supported (expected: x86_64 or aarch64)"
#endif

static void fail(const char *message, long length, int status) {
  system_call(SYS_write, 2, (long)message, length);
  for (;;) {
    system_call(SYS_exit_group, status, 0, 0);
  }
}

#define FAIL(message, status) fail(message, sizeof(message) - 1, status)

/* Any open descriptor will do as the one to copy. */
static void grow_descriptor_table(void) {
  for (long source = 0; source <= 2; source++) {
    long copy = system_call(SYS_fcntl, source, F_DUPFD_CLOEXEC, LAST_STDIO_DESCRIPTOR);
    if (copy >= 0) {
      system_call(SYS_close, copy, 0, 0);
      return;
    }
  }
  /* A lower descriptor limit, or no stdio: the sentry starts slower, but starts. */
}

/* The kernel's start stack: argc, argv..., NULL, envp..., NULL. */
__attribute__((noreturn, used)) void prewarm(long *stack) {
  long argc = stack[0];
  char **argv = (char **)(stack + 1);
  char **environment = argv + argc + 1;
  if (argc < 3) {
    FAIL("usage: gvisor-sentry-prewarmer BINARY ARGV0 [ARG...]\n", EXIT_USAGE);
  }
  grow_descriptor_table();
  system_call(SYS_execve, (long)argv[1], (long)(argv + 2), (long)environment);
  FAIL("gvisor-sentry-prewarmer: the sentry cannot be executed\n", EXIT_CANNOT_EXECUTE);
  __builtin_unreachable();
}
