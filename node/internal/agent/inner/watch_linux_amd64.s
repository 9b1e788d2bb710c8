#include "textflag.h"

// func startWatch(stack uintptr, w *watch) (tid int)
// The thread knows nothing of Go: no g, no stack that grows, all signals blocked. It sleeps, asks, and writes when memory is low.
TEXT ·startWatch(SB), NOSPLIT|NOFRAME, $0-24
	MOVQ w+8(FP), R12
	MOVQ stack+0(FP), SI
	MOVQ $0x50f00, DI          // CLONE_VM | FS | FILES | SIGHAND | THREAD | SYSVSEM
	XORQ DX, DX
	XORQ R10, R10
	XORQ R8, R8
	MOVQ $56, AX               // clone
	SYSCALL
	TESTQ AX, AX
	JEQ  look
	MOVQ AX, tid+16(FP)
	RET
look:
	LEAQ 0(R12), DI            // watch.interval
	XORQ SI, SI
	MOVQ $35, AX               // nanosleep
	SYSCALL
	LEAQ 48(R12), DI           // watch.info
	MOVQ $99, AX               // sysinfo
	SYSCALL
	MOVQ 88(R12), AX           // watch.info.Freeram
	CMPQ AX, 16(R12)           // watch.mark
	JCC  look
	MOVQ 24(R12), DI           // watch.event
	LEAQ 32(R12), SI           // watch.one
	MOVQ $8, DX
	MOVQ $1, AX                // write
	SYSCALL
	JMP  look
