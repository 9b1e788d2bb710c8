package gvisor_test

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"testing"

	"atoll/node/internal/driver"
	"atoll/node/internal/driver/drivertest"
	"atoll/node/internal/engine/enginetest"
)

// What makes an image of a sandbox must know of every way in which gVisor says what was changed.
func TestChangesSayWhatBecameOfEachFile(t *testing.T) {
	text := drivertest.ChangesBy(t, subject(t, enginetest.Files(t).Runsc, ""), `
rm -r /usr/share/doc/bash /usr/share/zoneinfo
rm -r /etc/skel && mkdir /etc/skel && echo new >/etc/skel/only
mv /etc/alternatives /etc/renamed
mkdir -p /srv/d && cd /srv/d
echo a >a && ln a b && ln -s a s && chown 1234:4321 a && chmod 4755 a
mkdir -m 1777 sticky && mkfifo fifo
python3 - <<'P'
import os, socket
os.setxattr("/srv/d/a", "user.k", b"v\x00\xff")
os.setxattr("/srv/d/a", "security.capability", bytes.fromhex("01000002c0200000000000000000000000000000"))
socket.socket(socket.AF_UNIX).bind("/srv/d/sock")
open(b"/srv/d/n\xff", "wb").write(b"x")
P
`)
	found := map[string]*tar.Header{}
	content := map[string]string{}
	for archive := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(strings.TrimPrefix(h.Name, "./"), "/")
		found[name], content[name] = h, string(body)
	}
	removed := func(name string) bool {
		h := found[name]
		if h != nil && h.Typeflag == tar.TypeLink {
			h = found[strings.TrimPrefix(h.Linkname, "./")]
		}
		return h != nil && h.Typeflag == tar.TypeChar && h.Devmajor == 0 && h.Devminor == 0
	}
	opaque := func(name string) bool {
		return found[name] != nil && found[name].PAXRecords["SCHILY.xattr.trusted.overlay.opaque"] == "y"
	}
	for _, name := range []string{"usr/share/doc/bash", "usr/share/zoneinfo", "etc/alternatives"} {
		if !removed(name) {
			t.Errorf("%s: %+v (expected: a whiteout, or a link to one)", name, found[name])
		}
	}
	for _, name := range []string{"etc/skel", "etc/renamed", "srv/d"} {
		if !opaque(name) {
			t.Errorf("%s: %+v (expected: opaque)", name, found[name])
		}
	}
	if content["etc/skel/only"] != "new\n" || found["etc/renamed/awk"] == nil {
		t.Error("what is in folders that were made or renamed is missing")
	}
	// One of two names comes first, and the other is a link to it.
	first, second := found["srv/d/a"], found["srv/d/b"]
	if first == nil || second == nil {
		t.Fatal("a file with two names is missing")
	}
	if first.Typeflag == tar.TypeLink {
		first, second = second, first
	}
	if second.Typeflag != tar.TypeLink || first.Mode != 0o4755 || first.Uid != 1234 || first.Gid != 4321 {
		t.Errorf("%+v, %+v (expected: one, and a link to it)", first, second)
	}
	if first.PAXRecords["SCHILY.xattr.user.k"] != "v\x00\xff" || len(first.PAXRecords["SCHILY.xattr.security.capability"]) != 20 {
		t.Errorf("attributes %q", first.PAXRecords)
	}
	if h := found["srv/d/s"]; h == nil || h.Typeflag != tar.TypeSymlink || h.Linkname != "a" {
		t.Errorf("symlink %+v", h)
	}
	if h := found["srv/d/sticky"]; h == nil || h.Mode != 0o1777 {
		t.Errorf("folder %+v", h)
	}
	if h := found["srv/d/fifo"]; h == nil || h.Typeflag != tar.TypeFifo {
		t.Errorf("FIFO %+v", h)
	}
	if found["srv/d/sock"] != nil || found["srv/d/n\xff"] == nil {
		t.Error("a socket is there, or a name that is no UTF-8 is not")
	}
}

// The sentry has less memory than the file has bytes.
func TestLargeFilesAreExportedInSmallMemory(t *testing.T) {
	const size = 400 << 20
	text := drivertest.ChangesBy(t, subject(t, enginetest.Files(t).Runsc, ""), "truncate -s 400M /srv/sparse && echo end | dd of=/srv/sparse conv=notrunc oflag=append 2>/dev/null",
		func(s *driver.Spec) { s.DiskBytes = 1 << 30 })
	for archive := tar.NewReader(bytes.NewReader(text)); ; {
		h, err := archive.Next()
		if err != nil {
			t.Fatalf("%v (expected: the file)", err)
		}
		if h.Name != "./srv/sparse" {
			continue
		}
		if h.Size != size+4 {
			t.Fatalf("%d bytes (expected: %d)", h.Size, size+4)
		}
		if _, err := io.CopyN(io.Discard, archive, size); err != nil {
			t.Fatal(err)
		}
		if end, err := io.ReadAll(archive); err != nil || string(end) != "end\n" {
			t.Fatalf("%q, %v (expected: the end of the file)", end, err)
		}
		return
	}
}
