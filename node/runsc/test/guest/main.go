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
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "start-time" {
		fmt.Println(startTime())
		return
	}
	counter := 0
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
		case "count":
			counter++
			fmt.Println(counter)
		default:
			fmt.Println("unknown")
		}
	}
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
