package driver

import (
	"os"
	"strings"
)

// Tail returns the last bytes of a text file, whole lines where possible.
func Tail(path string, limit int64) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return ""
	}
	start := max(0, info.Size()-limit)
	b := make([]byte, info.Size()-start)
	n, err := f.ReadAt(b, start)
	if n == 0 && err != nil {
		return ""
	}
	text := string(b[:n])
	if start > 0 {
		if _, rest, ok := strings.Cut(text, "\n"); ok {
			text = rest
		}
	}
	return strings.ToValidUTF8(strings.TrimSpace(text), "�")
}
