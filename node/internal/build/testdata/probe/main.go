// Command probe says what a program in a sandbox sees, without a C library, a shell or any file of an image.
package main

import (
	"fmt"
	"os"
)

func main() {
	cwd, err := os.Getwd()
	fmt.Printf("uid=%d gid=%d cwd=%s %v home=%s user=%s\n", os.Getuid(), os.Getgid(), cwd, err, os.Getenv("HOME"), os.Getenv("USER"))
	for _, path := range os.Args[1:] {
		err := os.WriteFile(path, []byte("x"), 0o600)
		fmt.Printf("write %s: %v\n", path, err)
	}
}
