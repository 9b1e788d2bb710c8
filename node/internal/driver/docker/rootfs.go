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
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"atoll/node/internal/erofs"
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
	file, root, err := readTree(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	reader, writer := io.Pipe()
	written := make(chan struct{})
	go func() {
		defer close(written)
		writer.CloseWithError(writeTar(writer, file, root))
	}()
	// Not before nobody reads the file any more.
	defer func() { <-written }()
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
func writeTar(to io.Writer, from io.ReaderAt, root *erofs.Inode) error {
	out := tar.NewWriter(to)
	linked := map[*erofs.Inode]string{}
	var folder func(path string, inode *erofs.Inode) error
	folder = func(path string, inode *erofs.Inode) error {
		for _, name := range slices.Sorted(maps.Keys(inode.Children)) {
			child, path := inode.Children[name], path+name
			header := &tar.Header{
				Format: tar.FormatPAX, Name: path, Uid: int(child.UID), Gid: int(child.GID), Mode: int64(child.Mode & 0o7777),
				ModTime: time.Unix(child.Mtime, int64(child.MtimeNsec)),
			}
			first, again := linked[child]
			switch {
			case child.IsDir():
				header.Typeflag, header.Name = tar.TypeDir, path+"/"
				if err := out.WriteHeader(header); err != nil {
					return err
				}
				if err := folder(path+"/", child); err != nil {
					return err
				}
				continue
			case again:
				header.Typeflag, header.Linkname = tar.TypeLink, first
			case child.IsSymlink():
				header.Typeflag, header.Linkname = tar.TypeSymlink, child.Target
			case child.IsRegular():
				header.Typeflag, header.Size = tar.TypeReg, int64(child.Size)
			case child.Type() == unix.S_IFIFO:
				header.Typeflag = tar.TypeFifo
			default:
				continue
			}
			linked[child] = path
			if err := out.WriteHeader(header); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if header.Typeflag == tar.TypeReg {
				if _, err := io.Copy(out, content(from, child)); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
		}
		return nil
	}
	return errors.Join(folder("", root), out.Close())
}

func content(from io.ReaderAt, inode *erofs.Inode) io.Reader {
	return io.NewSectionReader(from, int64(inode.Offset), int64(inode.Size))
}

// readTree reads what an EROFS file holds; the file stays open for the contents.
func readTree(path string) (*os.File, *erofs.Inode, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil {
		var root *erofs.Inode
		if root, err = erofs.Read(file, info.Size()); err == nil {
			return file, root, nil
		}
	}
	return nil, nil, errors.Join(fmt.Errorf("image %s: %w", path, err), file.Close())
}

// unpackAgent makes the agent's image a folder that containers mount: its files only, all root's, readable by all. A folder that is there is whole.
func unpackAgent(image, parent string) (string, error) {
	sum := sha256.Sum256([]byte(image))
	folder := filepath.Join(parent, hex.EncodeToString(sum[:16]))
	if _, err := os.Stat(folder); err == nil {
		return folder, nil
	}
	file, root, err := readTree(image)
	if err != nil {
		return "", err
	}
	defer file.Close()
	if err := os.MkdirAll(parent, 0o711); err != nil {
		return "", err
	}
	draft, err := os.MkdirTemp(parent, ".new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(draft)
	if err := unpack(file, root, draft); err != nil {
		return "", fmt.Errorf("unpacking the agent: %w", err)
	}
	if err := os.Rename(draft, folder); err != nil {
		// Another box may have been faster.
		if _, there := os.Stat(folder); there != nil {
			return "", err
		}
	}
	return folder, nil
}

// unpack writes a tree of ours, of folders and files, into a folder that is there.
func unpack(from io.ReaderAt, inode *erofs.Inode, folder string) error {
	if err := os.Chmod(folder, 0o755); err != nil {
		return err
	}
	for name, child := range inode.Children {
		target := filepath.Join(folder, name)
		switch {
		case child.IsDir():
			if err := os.Mkdir(target, 0o755); err != nil {
				return err
			}
			if err := unpack(from, child, target); err != nil {
				return err
			}
		case child.IsRegular():
			if err := unpackFile(content(from, child), target, fs.FileMode(child.Mode).Perm()); err != nil {
				return err
			}
			// Byte code names the time of its source.
			at := time.Unix(child.Mtime, int64(child.MtimeNsec))
			if err := os.Chtimes(target, at, at); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%s is neither folder nor file", name)
		}
	}
	return nil
}

func unpackFile(content io.Reader, target string, mode fs.FileMode) error {
	file, err := os.OpenFile(target, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Chmod(mode), file.Close())
}
