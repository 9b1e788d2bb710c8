// Command atoll-image merges layers into an image, without privileges; the engine starts it.
package main

import (
	"fmt"
	"os"

	"atoll/node/internal/image/assemble"
)

func main() {
	if err := assemble.Main(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "atoll-image: "+err.Error())
		os.Exit(1)
	}
}
