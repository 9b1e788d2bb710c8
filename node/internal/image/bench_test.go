package image

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// BenchmarkAssemble makes an image of a tree like Debian's: 8,000 files, 120 MiB. The second kind changes one file of it.
func BenchmarkAssemble(b *testing.B) {
	var files []file
	block := make([]byte, 32<<10)
	for n := range block {
		block[n] = byte(n*n>>3) ^ byte(n)
	}
	size := 0
	for n := range 8000 {
		content := string(block[:(n*7919)%len(block)])
		size += len(content)
		files = append(files, regular(filepath.Join("usr", "share", string(rune('a'+n%26)), "file-"+string(rune('a'+n/26%26))+string(rune('a'+n/676))), content))
	}
	tarred := archive(b, files...)
	w, err := zstd.NewWriter(nil)
	if err != nil {
		b.Fatal(err)
	}
	packed := w.EncodeAll(tarred, nil)
	for name, content := range map[string][]byte{"tar": tarred, "zstd": packed} {
		b.Run(name, func(b *testing.B) {
			s := openStore(b, b.TempDir())
			b.SetBytes(int64(size))
			for b.Loop() {
				if _, err := s.Assemble(b.Context(), Request{Layers: []Layer{{Reader: bytes.NewReader(content)}}}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("changed", func(b *testing.B) {
		s := openStore(b, b.TempDir())
		base, err := s.Assemble(b.Context(), Request{Layers: []Layer{{Reader: bytes.NewReader(tarred)}}})
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(size))
		for b.Loop() {
			if _, err := s.Assemble(b.Context(), Request{Base: &base, Layers: []Layer{layer(b, regular("etc/motd", "new"))}}); err != nil {
				b.Fatal(err)
			}
		}
	})
	// A tar of the user's own: ATOLL_BENCH_TAR names it.
	if path := os.Getenv("ATOLL_BENCH_TAR"); path != "" {
		b.Run("own", func(b *testing.B) {
			info, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}
			s := openStore(b, b.TempDir())
			b.SetBytes(info.Size())
			for b.Loop() {
				f, err := os.Open(path)
				if err != nil {
					b.Fatal(err)
				}
				i, err := s.Assemble(b.Context(), Request{Layers: []Layer{{Reader: f}}})
				if err != nil {
					b.Fatal(err)
				}
				f.Close()
				b.ReportMetric(float64(i.Size), "image-bytes")
			}
		})
	}
}
