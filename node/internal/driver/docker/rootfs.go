package docker

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"

	"github.com/erofs/go-erofs"
)

// images are the root file systems that Docker has of us: each an EROFS file, imported once.
type images struct {
	client   *client
	instance string

	// mu is held during an import: a second box of the same image waits for the first.
	mu sync.Mutex
}

const pathLabel = "atoll.image.path"

// name is what an EROFS file is called in Docker: its content never changes under its path.
func (i *images) name(path string) (repository, tag string) {
	sum := sha256.Sum256([]byte(path))
	return "atoll-" + i.instance, hex.EncodeToString(sum[:16])
}

// ensure imports the file if Docker does not have it, and returns its name there.
func (i *images) ensure(ctx context.Context, path string) (string, error) {
	repository, tag := i.name(path)
	name := repository + ":" + tag
	i.mu.Lock()
	defer i.mu.Unlock()
	err := i.client.call(ctx, http.MethodGet, "/images/"+name+"/json", nil, nil, nil)
	if err == nil || !isStatus(err, http.StatusNotFound) {
		return name, err
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	root, err := erofs.Open(file)
	if err != nil {
		return "", fmt.Errorf("image %s: %w", path, err)
	}
	reader, writer := io.Pipe()
	go func() { writer.CloseWithError(writeTar(writer, root)) }()
	defer reader.Close()
	query := url.Values{"fromSrc": {"-"}, "repo": {repository}, "tag": {tag}, "changes": {
		"LABEL " + instanceLabel + "=" + i.instance, "LABEL " + pathLabel + "=" + path,
	}}
	if err := i.client.call(ctx, http.MethodPost, "/images/create", query, reader, &progress{}); err != nil {
		return "", fmt.Errorf("giving image %s to Docker: %w", path, err)
	}
	return name, nil
}

// prune removes those whose file is gone, or all. What a container uses, Docker refuses to remove.
func (i *images) prune(ctx context.Context, all bool) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	var there []struct {
		ID     string `json:"Id"`
		Labels map[string]string
	}
	if err := i.client.call(ctx, http.MethodGet, "/images/json", labelled(instanceLabel+"="+i.instance), nil, &there); err != nil {
		return err
	}
	var failures []error
	for _, one := range there {
		if _, err := os.Stat(one.Labels[pathLabel]); !all && !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		err := i.client.call(ctx, http.MethodDelete, "/images/"+one.ID, url.Values{"force": {"1"}}, nil, nil)
		if err != nil && !isStatus(err, http.StatusNotFound) && (all || !isStatus(err, http.StatusConflict)) {
			failures = append(failures, err)
		}
	}
	return errors.Join(failures...)
}

// writeTar writes a file system as Docker imports it. Devices are left out: whoever could open them would reach the host's.
func writeTar(to io.Writer, root fs.FS) error {
	out := tar.NewWriter(to)
	linked := map[int64]string{}
	err := fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*erofs.Stat)
		if !ok {
			return fmt.Errorf("%s: no owner is known", path)
		}
		if info.Mode()&(fs.ModeDevice|fs.ModeSocket) != 0 {
			return nil
		}
		var target string
		if info.Mode()&fs.ModeSymlink != 0 {
			if target, err = fs.ReadLink(root, path); err != nil {
				return err
			}
		}
		header, err := tar.FileInfoHeader(info, target)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		header.Name, header.Uid, header.Gid, header.Uname, header.Gname = path, int(stat.UID), int(stat.GID), "", ""
		header.Format = tar.FormatPAX
		// The mode that the file information tells is without these.
		header.Mode = int64(stat.Mode.Perm())
		for bit, of := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
			if stat.Mode&of != 0 {
				header.Mode |= bit
			}
		}
		if info.IsDir() {
			header.Name += "/"
		}
		if info.Mode().IsRegular() && stat.Nlink > 1 {
			if first, seen := linked[stat.Ino]; seen {
				header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
				return out.WriteHeader(header)
			}
			linked[stat.Ino] = path
		}
		if err := out.WriteHeader(header); err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		content, err := root.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, content)
		return errors.Join(err, content.Close())
	})
	return errors.Join(err, out.Close())
}

// unpackAgent makes the agent's image a folder that containers mount: its files only, all root's, readable by all. A folder that is there is whole.
func unpackAgent(image, parent string) (string, error) {
	sum := sha256.Sum256([]byte(image))
	folder := filepath.Join(parent, hex.EncodeToString(sum[:16]))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	file, err := os.Open(image)
	if err != nil {
		return "", err
	}
	defer file.Close()
	root, err := erofs.Open(file)
	if err != nil {
		return "", fmt.Errorf("agent image %s: %w", image, err)
	}
	if err := os.MkdirAll(parent, 0o711); err != nil {
		return "", err
	}
	draft, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(draft)
	err = fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		// The image is ours: it has folders and files, all of them below its root.
		target := filepath.Join(draft, filepath.FromSlash(path))
		info, err := entry.Info()
		switch {
		case err != nil:
			return err
		case info.IsDir():
			if err := os.MkdirAll(target, 0o755); err != nil {
				return err
			}
			return os.Chmod(target, 0o755)
		case !info.Mode().IsRegular():
			return fmt.Errorf("agent image: %s is neither folder nor file", path)
		}
		content, err := fs.ReadFile(root, path)
		if err != nil {
			return err
		}
		if err := os.WriteFile(target, content, info.Mode().Perm()); err != nil {
			return err
		}
		return os.Chtimes(target, info.ModTime(), info.ModTime())
	})
	if err != nil {
		return "", fmt.Errorf("unpacking the agent: %w", err)
	}
	if err := os.Rename(draft, folder); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, there := os.Stat(folder); there != nil {
			return "", err
		}
	}
	return folder, nil
}
