package main

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"time"
)

// uploadFolder sends the folder as one archive, which the sandbox unpacks.
func (c *copier) uploadFolder(ctx context.Context, from string, to place) error {
	root, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer root.Close()
	packed, packing := io.Pipe()
	go func() { packing.CloseWithError(pack(root, packing)) }()
	defer packed.Close()
	return c.putArchive(ctx, packed, to)
}

func (c *copier) putArchive(ctx context.Context, archive io.Reader, to place) error {
	query := c.query(to.path)
	query.Set("format", "tar")
	request, err := c.request(ctx, http.MethodPut, sandboxPath(to.sandbox, "/files:archive"), query, archive)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-tar")
	reply, err := c.send(request)
	if err != nil {
		return incomplete(err, "some of the files may be there")
	}
	defer reply.Body.Close()
	var taken struct{ Files, Bytes int64 }
	if err := json.NewDecoder(reply.Body).Decode(&taken); err != nil {
		return incomplete(unreachable{c.url, err}, "some of the files may be there")
	}
	c.files, c.bytes = taken.Files, taken.Bytes
	return nil
}

// pack writes files, folders and symlinks below root, symlinks as such.
func pack(root *os.Root, to io.Writer) error {
	archive := tar.NewWriter(to)
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		return packOne(root, archive, name, entry)
	})
	return errors.Join(err, archive.Close())
}

func packOne(root *os.Root, archive *tar.Writer, name string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: int64(info.Mode().Perm()), ModTime: info.ModTime()}
	switch {
	case info.Mode().IsRegular():
		file, err := root.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		header.Typeflag, header.Size = tar.TypeReg, info.Size()
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		_, err = io.CopyN(archive, file, info.Size())
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%s became shorter while it was copied (remedy: copy it again)", name)
		}
		return err
	case info.IsDir():
		header.Typeflag, header.Name = tar.TypeDir, name+"/"
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := root.Readlink(name)
		if err != nil {
			return err
		}
		header.Typeflag, header.Linkname = tar.TypeSymlink, target
	default:
		// Sockets, pipes and devices hold nothing to copy.
		return nil
	}
	return archive.WriteHeader(header)
}

// downloadFolder unpacks what the sandbox sends. That comes from code which is not trusted: nothing is written outside the target, whatever it
// names, and only files, folders and symlinks that stay inside are made.
func (c *copier) downloadFolder(ctx context.Context, from place, target string) error {
	query := c.query(from.path)
	query.Set("format", "tar")
	request, err := c.request(ctx, http.MethodGet, sandboxPath(from.sandbox, "/files:archive"), query, nil)
	if err != nil {
		return err
	}
	reply, err := c.send(request)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	if err := os.MkdirAll(target, 0o777); err != nil {
		return err
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return err
	}
	defer root.Close()
	left := 0
	err = unpack(reply.Body, root, func(name, why string) {
		if left++; left <= 20 {
			fmt.Fprintf(c.terminal.stderr, "left out: %s: %s\n", printable(name), why)
		}
	}, c)
	if left > 20 {
		fmt.Fprintf(c.terminal.stderr, "left out: %d more\n", left-20)
	}
	if err != nil {
		return incomplete(err, "some of the files are there")
	}
	return nil
}

func unpack(from io.Reader, root *os.Root, leaveOut func(name, why string), c *copier) error {
	archive := tar.NewReader(from)
	type folder struct {
		name string
		mode fs.FileMode
		at   time.Time
	}
	var folders []folder
	ended := false
	for !ended {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			ended = true
			break
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errBrokenOff, err)
		}
		name := path.Clean(header.Name)
		if name == "." {
			continue
		}
		if !filepath.IsLocal(name) {
			leaveOut(header.Name, "it lies outside the folder")
			continue
		}
		mode := fs.FileMode(header.Mode) & 0o777
		switch header.Typeflag {
		case tar.TypeDir:
			// Writable until all is in it.
			err = root.MkdirAll(name, mode|0o700)
			folders = append(folders, folder{name, mode, header.ModTime})
		case tar.TypeReg:
			err = unpackFile(root, name, mode, header.ModTime, archive, c)
		case tar.TypeSymlink:
			if filepath.IsAbs(header.Linkname) || !filepath.IsLocal(path.Join(path.Dir(name), header.Linkname)) {
				leaveOut(header.Name, "a symlink that leads outside the folder")
				continue
			}
			if err = root.Remove(name); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
			if err == nil {
				err = root.Symlink(header.Linkname, name)
			}
		default:
			leaveOut(header.Name, "neither file, folder nor symlink")
			continue
		}
		if err != nil {
			return err
		}
	}
	// Innermost first, since a folder's own time changes with what is made in it.
	for i := len(folders) - 1; i >= 0; i-- {
		one := folders[i]
		if err := errors.Join(root.Chtimes(one.name, one.at, one.at), root.Chmod(one.name, one.mode)); err != nil {
			return err
		}
	}
	return nil
}

func unpackFile(root *os.Root, name string, mode fs.FileMode, at time.Time, from io.Reader, c *copier) error {
	if parent := path.Dir(name); parent != "." {
		if err := root.MkdirAll(parent, 0o777); err != nil {
			return err
		}
	}
	// What is there goes first: it may be a symlink, or be open elsewhere.
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer file.Close()
	n, err := io.Copy(writeMarked{file}, from)
	c.bytes += n
	var written writeError
	if errors.As(err, &written) {
		return written.error
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errBrokenOff, err)
	}
	c.files++
	return errors.Join(file.Chmod(mode), file.Close(), root.Chtimes(name, at, at))
}
