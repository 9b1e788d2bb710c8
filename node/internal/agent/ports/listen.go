// Package ports tells which TCP ports the programs of a sandbox listen on, and tunnels connections to them.
package ports

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	execv1 "atoll/node/gen/execv1"
)

const (
	// A sandbox may have any number of sockets and processes; what is looked at is limited.
	maxListeners    = 4096
	maxProcesses    = 4096
	maxTableBytes   = 8 << 20
	maxCommandBytes = 256
	// TCP_LISTEN of the kernel.
	stateListen = "0A"
)

type listener struct {
	address netip.Addr
	port    uint16
	inode   string
}

// List reads the ports. inside runs a function where /proc shows the processes of the sandbox as they see one another: pids are those.
func List(inside func(call func()) error) (*execv1.ListPortsReply, error) {
	var found []listener
	tables := 0
	// The tables are those of the network namespace, which the agent shares with the sandbox.
	for _, name := range []string{"tcp", "tcp6"} {
		listeners, err := readTable(filepath.Join("/proc/net", name))
		if os.IsNotExist(err) {
			continue // a kernel without it
		}
		if err != nil {
			return nil, fmt.Errorf("listening ports: %w", err)
		}
		tables++
		found = append(found, listeners...)
	}
	if tables == 0 {
		return nil, errors.New("listening ports: /proc/net has no table of sockets")
	}
	own := ownSockets()
	found = slices.DeleteFunc(found, func(l listener) bool { return own[l.inode] })
	if len(found) == 0 {
		return &execv1.ListPortsReply{}, nil
	}
	answer := make(chan *execv1.ListPortsReply, 1)
	if err := inside(func() { answer <- describe(found, "/proc") }); err != nil {
		return nil, err
	}
	return <-answer, nil
}

func readTable(path string) ([]listener, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return parseTable(io.LimitReader(file, maxTableBytes))
}

// parseTable reads the form of /proc/net/tcp: after a line of titles, one socket a line.
func parseTable(r io.Reader) ([]listener, error) {
	var found []listener
	lines := bufio.NewScanner(r)
	for lines.Scan() && len(found) < maxListeners {
		// sl, local_address, rem_address, st, tx_queue:rx_queue, tr:tm->when, retrnsmt, uid, timeout, inode
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != stateListen {
			continue
		}
		if address, port, ok := parseAddress(fields[1]); ok {
			found = append(found, listener{address: address, port: port, inode: fields[9]})
		}
	}
	return found, lines.Err()
}

// parseAddress reads an address as the kernel prints it: words of 32 bits in its own byte order, which is little endian where we run.
func parseAddress(text string) (netip.Addr, uint16, bool) {
	host, service, ok := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	if !ok || err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.Addr{}, 0, false
	}
	port, err := strconv.ParseUint(service, 16, 16)
	if err != nil {
		return netip.Addr{}, 0, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	address, ok := netip.AddrFromSlice(raw)
	return address, uint16(port), ok
}

func describe(found []listener, proc string) *execv1.ListPortsReply {
	reply := &execv1.ListPortsReply{}
	owners := findOwners(found, proc)
	type key struct {
		address netip.Addr
		port    uint16
	}
	seen := map[key]bool{}
	for _, l := range found {
		if seen[key{l.address, l.port}] {
			continue
		}
		seen[key{l.address, l.port}] = true
		port := &execv1.ListeningPort{Port: uint32(l.port), Address: l.address.String()}
		if pid := owners[l.inode]; pid != 0 {
			port.Pid = int32(pid)
			port.Command = commandOf(proc, pid)
		}
		reply.Ports = append(reply.Ports, port)
	}
	slices.SortFunc(reply.Ports, func(a, b *execv1.ListeningPort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), strings.Compare(a.Address, b.Address))
	})
	return reply
}

// findOwners looks for the processes that hold the sockets, the one that was started first if there are several.
func findOwners(found []listener, proc string) map[string]int {
	wanted := map[string]bool{}
	for _, l := range found {
		wanted[l.inode] = true
	}
	owners := map[string]int{}
	for _, pid := range numbers(proc, maxProcesses) {
		if len(owners) == len(wanted) {
			break
		}
		for inode := range sockets(filepath.Join(proc, strconv.Itoa(pid), "fd")) {
			if wanted[inode] && owners[inode] == 0 {
				owners[inode] = pid
			}
		}
	}
	return owners
}

// numbers are the entries of a folder that are numbers, in their order.
func numbers(folder string, limit int) []int {
	opened, err := os.Open(folder)
	if err != nil {
		return nil // gone meanwhile
	}
	defer opened.Close()
	names, _ := opened.Readdirnames(-1)
	var found []int
	for _, name := range names {
		if n, err := strconv.Atoi(name); err == nil {
			found = append(found, n)
		}
	}
	slices.Sort(found)
	return found[:min(len(found), limit)]
}

// sockets yields the inodes of the sockets that a folder of descriptors leads to.
func sockets(folder string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		opened, err := os.Open(folder)
		if err != nil {
			return
		}
		defer opened.Close()
		for {
			names, err := opened.Readdirnames(256)
			for _, name := range names {
				link, err := os.Readlink(filepath.Join(folder, name))
				if err != nil || !strings.HasPrefix(link, "socket:[") {
					continue
				}
				if !yield(strings.TrimSuffix(strings.TrimPrefix(link, "socket:["), "]")) {
					return
				}
			}
			if err != nil {
				return
			}
		}
	}
}

func ownSockets() map[string]bool {
	own := map[string]bool{}
	for inode := range sockets("/proc/self/fd") {
		own[inode] = true
	}
	return own
}

// commandOf is the command line, or the short name of a process without one.
func commandOf(proc string, pid int) string {
	folder := filepath.Join(proc, strconv.Itoa(pid))
	text := head(filepath.Join(folder, "cmdline"))
	if len(text) == 0 {
		text = head(filepath.Join(folder, "comm"))
	}
	text = bytes.TrimRight(text, "\x00\n")
	return strings.ToValidUTF8(string(bytes.ReplaceAll(text, []byte{0}, []byte{' '})), "\uFFFD")
}

func head(path string) []byte {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text := make([]byte, maxCommandBytes)
	n, _ := io.ReadFull(file, text)
	return text[:n]
}
