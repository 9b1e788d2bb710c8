// Command guest is what the tests of runsc run as PID 1 of a sandbox. It reads
// one word per line and answers with one line.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "start-time" {
		fmt.Println(startTime())
		return
	}
	counter := 0
	var sparse []byte
	var err error
	var timers *timers
	// As the agent does: it is woken by a poll when there is input.
	if err := syscall.SetNonblock(0, true); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.NewFile(0, "input")); lines.Scan(); {
		switch lines.Text() {
		case "fill":
			fmt.Println(fill("/filled"))
		case "timers":
			timers = startTimers()
			fmt.Println("ticking")
		case "clocks":
			answer, err := json.Marshal(readClocks(timers))
			if err != nil {
				fmt.Println(err)
			}
			fmt.Println(string(answer))
		case "sparse":
			if sparse, err = unix.Mmap(-1, 0, sparseBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
				fmt.Println(err)
				continue
			}
			for at := 0; at < len(sparse); at += sparseEvery {
				sparse[at], sparse[at+4095] = byte(1+at/sparseEvery%250), 7
			}
			fmt.Println("touched")
		case "sum":
			fmt.Println(sumOf(sparse))
		case "count":
			counter++
			fmt.Println(counter)
		default:
			fmt.Println("unknown")
		}
	}
}

// Of a large memory of which little was ever touched: a page of each so many bytes.
const (
	sparseBytes = 256 << 20
	sparseEvery = 1 << 20
)

// sumOf tells what is in the pages that were touched, and in their neighbours.
func sumOf(sparse []byte) string {
	sum, beside := 0, 0
	for at := 0; at < len(sparse); at += sparseEvery {
		sum += int(sparse[at]) + int(sparse[at+4095])
		beside += int(sparse[at+4096]) + int(sparse[at+sparseEvery-1])
	}
	return fmt.Sprintf("%d, beside them %d", sum, beside)
}

// fill writes until the disk is full, then makes room and writes once more.
func fill(path string) string {
	file, err := os.Create(path)
	if err != nil {
		return err.Error()
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i)
	}
	total := 0
	for {
		n, err := file.Write(block)
		total += n
		if errors.Is(err, syscall.ENOSPC) {
			break
		}
		if err != nil {
			return err.Error()
		}
		if total > 1<<30 {
			return "no quota within 1 GiB"
		}
	}
	file.Close()
	if err := os.Remove(path); err != nil {
		return err.Error()
	}
	if err := os.WriteFile(path, block, 0o600); err != nil {
		return "after making room: " + err.Error()
	}
	return fmt.Sprintf("ENOSPC after %d MiB", total>>20)
}
