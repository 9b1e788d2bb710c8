package filestest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	filev1 "atoll/node/gen/filev1"
	"atoll/node/internal/frame"
)

const (
	create    = filev1.FileEventType_FILE_EVENT_TYPE_CREATE
	write     = filev1.FileEventType_FILE_EVENT_TYPE_WRITE
	remove    = filev1.FileEventType_FILE_EVENT_TYPE_REMOVE
	rename    = filev1.FileEventType_FILE_EVENT_TYPE_RENAME
	chmod     = filev1.FileEventType_FILE_EVENT_TYPE_CHMOD
	plainTar  = filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR
	zippedTar = filev1.ArchiveFormat_ARCHIVE_FORMAT_TAR_GZIP
)

// Run checks the promises, each in a sandbox's fresh folder.
func Run(t *testing.T, sandbox func(t *testing.T) *Sandbox) {
	for _, promise := range []struct {
		name  string
		check func(*Sandbox)
	}{
		{"a_user_cannot_read_a_file_of_roots", userCannotRead},
		{"a_user_cannot_write_to_etc", userCannotWriteEtc},
		{"what_a_user_makes_belongs_to_the_user", userOwns},
		{"root_reads_what_users_cannot", rootReads},
		{"users_take_turns_without_mixing_their_rights", usersTakeTurns},
		{"an_unknown_user_is_an_invalid_argument", unknownUser},
		{"bad_paths_are_invalid_arguments", badPaths},
		{"names_with_newlines_blanks_and_emoji_work", strangeNames},
		{"names_that_are_no_UTF8_are_told_with_their_bytes", brokenNames},
		{"a_FIFO_is_refused_at_once", fifo},
		{"a_device_is_refused_at_once", device},
		{"a_loop_of_symlinks_is_refused", loop},
		{"a_symlink_is_told_as_such", symlinks},
		{"a_file_that_proc_makes_is_read_to_its_end", procFile},
		{"dot_dot_is_resolved_as_the_system_does", dotDot},
		{"reading_starts_at_an_offset_and_ends_after_a_length", ranges},
		{"a_large_file_goes_up_and_down_unchanged", largeFile},
		{"a_reader_that_does_not_read_stalls_no_other_call", slowReader},
		{"a_file_that_gets_shorter_ends_the_read_as_aborted", shrinking},
		{"a_file_that_gets_longer_ends_where_it_ended", growing},
		{"a_write_that_is_broken_off_leaves_the_old_contents_and_nothing_else", brokenOff},
		{"a_replaced_file_keeps_mode_owner_and_other_names", keepsMode},
		{"a_file_in_a_folder_that_is_not_writable_is_replaced", unwritableFolder},
		{"a_read_only_file_is_not_replaced", readOnlyFile},
		{"a_symlink_is_followed_when_its_file_is_replaced", replaceThroughSymlink},
		{"create_fails_where_something_is", createMode},
		{"append_and_offset_leave_the_rest", appendAndOffset},
		{"more_than_the_disk_has_is_refused_at_once", expectedTooMuch},
		{"extended_attributes_are_kept", extendedAttributes},
		{"folders_are_made_with_those_above", makeFolders},
		{"a_move_replaces_only_when_told", moves},
		{"a_copy_takes_folders_symlinks_and_holes_as_they_are", copies},
		{"a_copy_into_itself_ends", copyIntoItself},
		{"remove_never_follows_a_symlink", removes},
		{"ten_thousand_folders_deep_are_listed_and_removed", deep},
		{"mode_owner_and_time_are_changed_recursively", chmods},
		{"a_listing_is_in_byte_order_and_comes_in_pages", listing},
		{"find_looks_at_names", findsNames},
		{"find_looks_at_contents", findsContents},
		{"replace_changes_files_and_says_how_often", replaces},
		{"a_folder_goes_out_and_in_as_an_archive", archives},
		{"an_archive_never_writes_outside_of_its_folder", tarSlip},
		{"an_archive_that_is_cut_short_is_refused", cutArchive},
		{"a_watch_tells_what_happens", watches},
		{"a_recursive_watch_follows_new_folders", watchesNewFolders},
		{"a_watch_ends_when_its_folder_goes", watchEnds},
		{"a_swapped_symlink_gains_nobody_anything", swapRace},
		{"a_cancelled_search_ends", cancelledSearch},
		{"calls_at_once_do_not_disturb_one_another", manyCalls},
		{"disk_usage_is_told", diskUsage},
	} {
		t.Run(promise.name, func(t *testing.T) { promise.check(sandbox(t)) })
	}
}

func userCannotRead(s *Sandbox) {
	s.Puts("root", s.Path("secret"), "of root's")
	mode := uint32(0o600)
	s.Does("root", &filev1.Chmod{Path: s.Path("secret"), Mode: &mode})
	_, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("secret")}, nil)
	s.Failed(codes.PermissionDenied, err, "reading a file of root's")
	_, err = s.Read(&filev1.ReadFileRequest{User: Someone, Path: "/etc/shadow"}, nil)
	s.Failed(codes.PermissionDenied, err, "reading /etc/shadow")
	if text := s.Text("root", s.Path("secret")); text != "of root's" {
		s.T.Errorf("%q", text)
	}
}

func userCannotWriteEtc(s *Sandbox) {
	_, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: "/etc/atoll-test"}, "x")
	s.Failed(codes.PermissionDenied, err, "writing into /etc")
	_, err = s.Write(&filev1.WriteFileOpen{User: Someone, Path: "/etc/passwd"}, "x")
	s.Failed(codes.PermissionDenied, err, "replacing /etc/passwd")
	s.Refuses(codes.PermissionDenied, Someone, &filev1.MakeDirectory{Path: "/etc/atoll-test"})
	s.Refuses(codes.PermissionDenied, Someone, &filev1.Remove{Path: "/etc/passwd"})
	s.Refuses(codes.PermissionDenied, Someone, &filev1.Move{From: "/etc/passwd", To: s.Path("passwd")})
	mode := uint32(0o777)
	s.Refuses(codes.PermissionDenied, Someone, &filev1.Chmod{Path: "/etc/passwd", Mode: &mode})
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("link"), Target: "/etc/passwd"})
	_, err = s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("link")}, "x")
	s.Failed(codes.PermissionDenied, err, "replacing /etc/passwd by way of a symlink")
}

func userOwns(s *Sandbox) {
	file := s.Puts(Someone, s.Path("mine"), "x").File
	folder := s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("folder/below"), Parents: true}).File
	above := s.Does(Someone, &filev1.Stat{Path: s.Path("folder")}).File
	for _, info := range []*filev1.FileInfo{file, folder, above} {
		if info.Uid != 12321 || info.Gid != 12321 || info.Owner != "12321" {
			s.T.Errorf("%v", info)
		}
	}
	if file.Mode != 0o644 || folder.Mode != 0o755 || file.Size != 1 || file.Name != "mine" || file.Path != s.Path("mine") {
		s.T.Errorf("%v, %v", file, folder)
	}
	if info := s.Puts("root", s.Path("roots"), "x").File; info.Uid != 0 || info.Owner != "root" || info.Group != "root" {
		s.T.Errorf("%v", info)
	}
}

func rootReads(s *Sandbox) {
	s.Puts(Someone, s.Path("private"), "x")
	mode := uint32(0)
	s.Does(Someone, &filev1.Chmod{Path: s.Path("private"), Mode: &mode})
	_, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("private")}, nil)
	s.Failed(codes.PermissionDenied, err, "reading without the right to")
	if text := s.Text("root", s.Path("private")); text != "x" {
		s.T.Errorf("%q", text)
	}
}

func usersTakeTurns(s *Sandbox) {
	users := []string{"root", "12321:12321", "12322:12322", "12323:12323"}
	var group sync.WaitGroup
	failures := make(chan error, 1000)
	for worker := range 12 {
		group.Add(1)
		go func() {
			defer group.Done()
			for round := range 25 {
				user := users[(worker+round)%len(users)]
				uid := uint32(0)
				if user != "root" {
					id, _, _ := strings.Cut(user, ":")
					n, _ := strconv.Atoi(id)
					uid = uint32(n)
				}
				reply, err := s.Call(user, &filev1.MakeDirectory{Path: s.Path(fmt.Sprintf("of-%d-%d", worker, round))})
				if err != nil {
					failures <- err
				} else if reply.File.Uid != uid || reply.File.Gid != uid {
					failures <- fmt.Errorf("made by %s: %v", user, reply.File)
				}
			}
		}()
	}
	group.Wait()
	close(failures)
	for err := range failures {
		s.T.Error(err)
	}
}

func unknownUser(s *Sandbox) {
	for _, user := range []string{"nobody-knows-me", "4294967295", "-1", "1:nobody-knows-me", "12:4294967295", ":"} {
		s.Refuses(codes.InvalidArgument, user, &filev1.Stat{Path: "/"})
	}
	s.Does("daemon", &filev1.Stat{Path: "/"})
	s.Does("1", &filev1.Stat{Path: "/"})
}

func badPaths(s *Sandbox) {
	for _, path := range []string{"", "a\x00b", s.Path(strings.Repeat("x", 256)), "/" + strings.Repeat("y/", 2100)} {
		s.Refuses(codes.InvalidArgument, Someone, &filev1.Stat{Path: path})
		_, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: path}, "x")
		s.Failed(codes.InvalidArgument, err, fmt.Sprintf("writing to a path of %d bytes", len(path)))
		_, err = s.Read(&filev1.ReadFileRequest{User: Someone, Path: path}, nil)
		s.Failed(codes.InvalidArgument, err, fmt.Sprintf("reading a path of %d bytes", len(path)))
	}
	s.Refuses(codes.NotFound, Someone, &filev1.Stat{Path: s.Path("missing")})
	s.Puts(Someone, s.Path("file"), "")
	s.Refuses(codes.FailedPrecondition, Someone, &filev1.Stat{Path: s.Path("file/below")})
	s.Refuses(codes.FailedPrecondition, Someone, &filev1.List{Path: s.Path("file")})
	long := strings.Repeat("d/", (4000-len(s.Folder))/2) + "end"
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path(long), Parents: true})
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path(long)}).File; info.Path != s.Path(long) {
		s.T.Errorf("%v", info)
	}
}

func strangeNames(s *Sandbox) {
	for _, name := range []string{"a\nb", " ", "-rf", "*", "ä 🙂", "quote'\"", "tab\t", "\x01\x7f", "...", "back\\slash"} {
		if info := s.Puts(Someone, s.Path(name), name).File; info.Name != name || info.Path != s.Path(name) {
			s.T.Errorf("%q: %v", name, info)
		}
		if text := s.Text(Someone, s.Path(name)); text != name {
			s.T.Errorf("%q: %q", name, text)
		}
	}
	if names := s.Names(Someone, &filev1.List{Path: s.Folder, Hidden: true}); len(names) != 10 || !slices.IsSorted(names) {
		s.T.Errorf("%q", names)
	}
}

func brokenNames(s *Sandbox) {
	s.Shell("cd '" + s.Folder + "' && touch \"$(printf 'a\\377b')\" && chmod 666 *")
	entries := s.Does(Someone, &filev1.List{Path: s.Folder}).Entries
	if len(entries) != 1 || entries[0].Name != "a\uFFFDb" || string(entries[0].RawName) != "a\xffb" {
		s.T.Fatalf("%v", entries)
	}
	download, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Folder, Archive: plainTar}, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	header, err := tar.NewReader(bytes.NewReader(download.Data)).Next()
	if err != nil || header.Name != "a\xffb" {
		s.T.Errorf("%v %v", header, err)
	}
	if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("out"), Archive: plainTar}, string(download.Data)); err != nil {
		s.T.Fatal(err)
	}
	if entries = s.Does(Someone, &filev1.List{Path: s.Path("out")}).Entries; len(entries) != 1 || string(entries[0].RawName) != "a\xffb" {
		s.T.Errorf("%v", entries)
	}
}

// refusesSpecial expects that what is no regular file is refused in bounded time, and other calls go on.
func refusesSpecial(s *Sandbox, path string) {
	_, err := s.Read(&filev1.ReadFileRequest{User: "root", Path: path}, nil)
	s.Failed(codes.FailedPrecondition, err, "reading "+path)
	_, err = s.Read(&filev1.ReadFileRequest{User: "root", Path: path, Archive: plainTar}, nil)
	s.Failed(codes.FailedPrecondition, err, "an archive of "+path)
	for _, mode := range []filev1.WriteMode{filev1.WriteMode_WRITE_MODE_REPLACE, filev1.WriteMode_WRITE_MODE_APPEND, filev1.WriteMode_WRITE_MODE_AT_OFFSET} {
		_, err = s.Write(&filev1.WriteFileOpen{User: "root", Path: path, Mode: mode}, "x")
		s.Failed(codes.FailedPrecondition, err, fmt.Sprintf("writing %s, %v", path, mode))
	}
	s.Refuses(codes.FailedPrecondition, "root", &filev1.Copy{From: path, To: s.Path("copy")})
	if reply := s.Does("root", &filev1.Replace{Paths: []string{path}, Pattern: "a", Replacement: "b"}); reply.Replaced[0].Error == "" {
		s.T.Errorf("%v", reply)
	}
	if info := s.Does("root", &filev1.Stat{Path: path}).File; info.Type != filev1.FileType_FILE_TYPE_OTHER {
		s.T.Errorf("%v", info)
	}
}

func fifo(s *Sandbox) {
	s.Shell("mkfifo '" + s.Path("fifo") + "'")
	refusesSpecial(s, s.Path("fifo"))
	if reply := s.Does("root", &filev1.Find{Path: s.Folder, Content: "x"}); len(reply.Matches) != 0 {
		s.T.Errorf("%v", reply)
	}
	s.Does("root", &filev1.Remove{Path: s.Path("fifo")})
}

func device(s *Sandbox) {
	refusesSpecial(s, "/dev/zero")
	refusesSpecial(s, "/dev/null")
}

func loop(s *Sandbox) {
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("a"), Target: "b"})
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("b"), Target: "a"})
	s.Refuses(codes.FailedPrecondition, Someone, &filev1.Stat{Path: s.Path("a"), Follow: true})
	_, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("a")}, nil)
	s.Failed(codes.FailedPrecondition, err, "reading a loop")
	_, err = s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("a")}, "x")
	s.Failed(codes.FailedPrecondition, err, "writing to a loop")
	if names := s.Names(Someone, &filev1.List{Path: s.Folder, Depth: 5}); !slices.Equal(names, []string{"a", "b"}) {
		s.T.Errorf("%q", names)
	}
}

func symlinks(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("folder")})
	s.Puts(Someone, s.Path("folder/file"), "x")
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("link"), Target: "folder"})
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("nowhere"), Target: "/not/there"})
	s.Refuses(codes.AlreadyExists, Someone, &filev1.MakeSymlink{Path: s.Path("link"), Target: "x"})
	info := s.Does(Someone, &filev1.Stat{Path: s.Path("link")}).File
	if info.Type != filev1.FileType_FILE_TYPE_SYMLINK || info.LinkTarget != "folder" || info.TargetType != filev1.FileType_FILE_TYPE_DIRECTORY {
		s.T.Errorf("%v", info)
	}
	if info = s.Does(Someone, &filev1.Stat{Path: s.Path("link"), Follow: true}).File; info.Type != filev1.FileType_FILE_TYPE_DIRECTORY {
		s.T.Errorf("%v", info)
	}
	info = s.Does(Someone, &filev1.Stat{Path: s.Path("nowhere")}).File
	if info.LinkTarget != "/not/there" || info.TargetType != filev1.FileType_FILE_TYPE_UNSPECIFIED {
		s.T.Errorf("%v", info)
	}
	if names := s.Names(Someone, &filev1.List{Path: s.Folder, Depth: 9}); !slices.Equal(names, []string{"folder", "folder/file", "link", "nowhere"}) {
		s.T.Errorf("%q", names)
	}
	if names := s.Names(Someone, &filev1.List{Path: s.Path("link")}); !slices.Equal(names, []string{"file"}) {
		s.T.Errorf("%q", names)
	}
}

func procFile(s *Sandbox) {
	if text := s.Text(Someone, "/proc/meminfo"); !strings.HasPrefix(text, "MemTotal:") || !strings.HasSuffix(text, "\n") {
		s.T.Errorf("%q", text)
	}
}

func dotDot(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("a/b"), Parents: true})
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("link"), Target: "a/b"})
	if info := s.Puts(Someone, s.Path("link/../file"), "x").File; info.Path != s.Path("a/file") {
		s.T.Errorf("%v", info)
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("a/./b/..//file")}).File; info.Path != s.Path("a/file") {
		s.T.Errorf("%v", info)
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("link/.."), Follow: true}).File; info.Path != s.Path("a") {
		s.T.Errorf("%v", info)
	}
	_, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: strings.Repeat("/..", 50) + "/etc/shadow"}, nil)
	s.Failed(codes.PermissionDenied, err, "/etc/shadow from far below")
}

func ranges(s *Sandbox) {
	s.Puts(Someone, s.Path("file"), "0123456789")
	for _, one := range []struct {
		offset, length uint64
		text           string
	}{{0, 0, "0123456789"}, {3, 0, "3456789"}, {3, 4, "3456"}, {9, 100, "9"}, {10, 0, ""}, {100, 5, ""}, {0, 10, "0123456789"}, {1 << 63, 1 << 63, ""}} {
		download, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("file"), Offset: one.offset, Length: one.length}, nil)
		if err != nil || string(download.Data) != one.text || download.File.GetSize() != 10 {
			s.T.Errorf("%v: %v %v", one, download, err)
		}
	}
	s.Puts(Someone, s.Path("empty"), "")
	if download, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("empty")}, nil); err != nil || download.File == nil || download.Size != 0 {
		s.T.Errorf("%v %v", download, err)
	}
}

func pattern(size int) []byte {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	return data
}

func largeFile(s *Sandbox) {
	const size = 64 << 20
	block := pattern(1 << 20)
	up, down := sha256.New(), sha256.New()
	began := time.Now()
	u := s.Begin(&filev1.WriteFileOpen{User: Someone, Path: s.Path("large"), ExpectedBytes: size})
	for range size >> 20 {
		block[0]++
		up.Write(block)
		if _, err := u.Write(block); err != nil {
			s.T.Fatal(err)
		}
	}
	reply, err := u.Commit()
	if err != nil || reply.Bytes != size || !reply.Created || reply.File.Size != size {
		s.T.Fatalf("%v %v", reply, err)
	}
	s.T.Logf("up: %.0f MB/s", size/1e6/time.Since(began).Seconds())
	began = time.Now()
	download, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("large")}, into(down))
	if err != nil || download.Size != size || !bytes.Equal(up.Sum(nil), down.Sum(nil)) {
		s.T.Fatalf("%v %v", download, err)
	}
	s.T.Logf("down: %.0f MB/s", size/1e6/time.Since(began).Seconds())
}

func into(h hash.Hash) func([]byte) error {
	return func(data []byte) error { _, _ = h.Write(data); return nil }
}

func slowReader(s *Sandbox) {
	s.Puts(Someone, s.Path("large"), string(pattern(2<<20)))
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("folder")})
	s.Does(Someone, &filev1.Copy{From: s.Path("large"), To: s.Path("folder/large")})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for i := range 20 {
		request := &filev1.ReadFileRequest{User: Someone, Path: s.Path("large")}
		if i%2 == 0 && i < 16 {
			request = &filev1.ReadFileRequest{User: Someone, Path: s.Path("folder"), Archive: plainTar}
		}
		stream, err := s.Session.Open(ctx, "atoll.agent.v1.Agent.ReadFile")
		if err != nil {
			s.T.Fatal(err)
		}
		if err := stream.Send(request); err != nil {
			s.T.Fatal(err)
		}
		if err := stream.Receive(&filev1.FilePiece{}); err != nil {
			s.T.Fatal(err)
		}
	}
	for i := range 20 {
		s.Puts(Someone, s.Path("other"), strconv.Itoa(i))
		if text := s.Text(Someone, s.Path("other")); text != strconv.Itoa(i) {
			s.T.Fatalf("%q", text)
		}
	}
	if reply := s.Does(Someone, &filev1.Find{Path: s.Folder, Name: "oth*"}); len(reply.Entries) != 1 {
		s.T.Errorf("%v", reply)
	}
}

func shrinking(s *Sandbox) {
	s.Puts(Someone, s.Path("file"), string(pattern(4<<20)))
	first := true
	_, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("file")}, func([]byte) error {
		if first {
			first = false
			s.Shell("truncate -s 100 '" + s.Path("file") + "'")
		}
		return nil
	})
	s.Failed(codes.Aborted, err, "reading a file that gets shorter")
}

func growing(s *Sandbox) {
	s.Puts(Someone, s.Path("file"), string(pattern(4<<20)))
	first := true
	download, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("file")}, func([]byte) error {
		if first {
			first = false
			if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("file"), Mode: filev1.WriteMode_WRITE_MODE_APPEND}, "more"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || download.Size != 4<<20 {
		s.T.Errorf("%v %v", download, err)
	}
}

func brokenOff(s *Sandbox) {
	s.Puts(Someone, s.Path("file"), "old")
	for _, path := range []string{"file", "new"} {
		u := s.Begin(&filev1.WriteFileOpen{User: Someone, Path: s.Path(path)})
		u.Data(pattern(10_000))
		s.Eventually("the data waits in a temporary file", func() error {
			if names := s.Names(Someone, &filev1.List{Path: s.Folder, Hidden: true}); len(names) != 2 {
				return fmt.Errorf("%q", names)
			}
			return nil
		})
		u.BreakOff()
		s.Eventually("nothing else is left", func() error {
			if names := s.Names(Someone, &filev1.List{Path: s.Folder, Hidden: true}); !slices.Equal(names, []string{"file"}) {
				return fmt.Errorf("%q", names)
			}
			return nil
		})
		if text := s.Text(Someone, s.Path("file")); text != "old" {
			s.T.Errorf("%q", text)
		}
	}
}

func keepsMode(s *Sandbox) {
	s.Puts(Someone, s.Path("file"), "old")
	mode := uint32(0o751)
	s.Does(Someone, &filev1.Chmod{Path: s.Path("file"), Mode: &mode})
	reply, err := s.Write(&filev1.WriteFileOpen{User: "root", Path: s.Path("file"), Permissions: 0o600}, "new")
	if err != nil || reply.Created || reply.File.Mode != 0o751 || reply.File.Uid != 12321 || reply.File.Gid != 12321 {
		s.T.Errorf("%v %v", reply, err)
	}
	mode = 0o666
	s.Puts("root", s.Path("roots"), "old")
	s.Does("root", &filev1.Chmod{Path: s.Path("roots"), Mode: &mode})
	if info := s.Puts(Someone, s.Path("roots"), "newer").File; info.Uid != 0 || info.Mode != 0o666 {
		s.T.Errorf("%v", info)
	}
	if text := s.Text(Someone, s.Path("roots")); text != "newer" {
		s.T.Errorf("%q", text)
	}
	s.Shell("cd '" + s.Folder + "' && ln file other")
	s.Puts(Someone, s.Path("file"), "newest")
	if text := s.Text(Someone, s.Path("other")); text != "newest" {
		s.T.Errorf("%q", text)
	}
	if reply, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("bare"), Permissions: 0o4711}, ""); err != nil || reply.File.Mode != 0o4711 {
		s.T.Errorf("%v %v", reply, err)
	}
}

func unwritableFolder(s *Sandbox) {
	s.Does("root", &filev1.MakeDirectory{Path: s.Path("roots")})
	s.Puts("root", s.Path("roots/file"), "old and longer")
	mode := uint32(0o666)
	s.Does("root", &filev1.Chmod{Path: s.Path("roots/file"), Mode: &mode})
	u := s.Begin(&filev1.WriteFileOpen{User: Someone, Path: s.Path("roots/file")})
	u.Data([]byte("bro"))
	u.BreakOff()
	if text := s.Text(Someone, s.Path("roots/file")); text != "old and longer" {
		s.T.Errorf("%q", text)
	}
	if info := s.Puts(Someone, s.Path("roots/file"), "new").File; info.Uid != 0 || info.Size != 3 {
		s.T.Errorf("%v", info)
	}
	if text := s.Text(Someone, s.Path("roots/file")); text != "new" {
		s.T.Errorf("%q", text)
	}
	_, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("roots/new")}, "x")
	s.Failed(codes.PermissionDenied, err, "a new file in a folder of root's")
}

func readOnlyFile(s *Sandbox) {
	s.Puts(Someone, s.Path("file"), "old")
	mode := uint32(0o444)
	s.Does(Someone, &filev1.Chmod{Path: s.Path("file"), Mode: &mode})
	_, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("file")}, "new")
	s.Failed(codes.PermissionDenied, err, "replacing a read-only file")
}

func replaceThroughSymlink(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("folder")})
	s.Puts(Someone, s.Path("folder/file"), "old")
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("one"), Target: "two"})
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("two"), Target: s.Path("folder/file")})
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("three"), Target: "folder/new"})
	s.Puts(Someone, s.Path("one"), "new")
	s.Puts(Someone, s.Path("three"), "fresh")
	if a, b := s.Text(Someone, s.Path("folder/file")), s.Text(Someone, s.Path("folder/new")); a != "new" || b != "fresh" {
		s.T.Errorf("%q %q", a, b)
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("one")}).File; info.LinkTarget != "two" {
		s.T.Errorf("%v", info)
	}
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("four"), Target: "folder"})
	_, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("four")}, "x")
	s.Failed(codes.FailedPrecondition, err, "writing to a folder")
}

func createMode(s *Sandbox) {
	open := func(path string) *filev1.WriteFileOpen {
		return &filev1.WriteFileOpen{User: Someone, Path: s.Path(path), Mode: filev1.WriteMode_WRITE_MODE_CREATE, Parents: true}
	}
	if reply, err := s.Write(open("a/b/file"), "x"); err != nil || !reply.Created {
		s.T.Fatalf("%v %v", reply, err)
	}
	_, err := s.Write(open("a/b/file"), "y")
	s.Failed(codes.AlreadyExists, err, "creating a file that is there")
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("link"), Target: "nowhere"})
	_, err = s.Write(open("link"), "y")
	s.Failed(codes.AlreadyExists, err, "creating a file where a symlink is")
	u := s.Begin(open("late"))
	u.Data([]byte("x"))
	s.Eventually("the temporary file is there", func() error {
		if names := s.Names(Someone, &filev1.List{Path: s.Folder, Hidden: true}); len(names) != 3 {
			return fmt.Errorf("%q", names)
		}
		return nil
	})
	s.Puts(Someone, s.Path("late"), "first")
	_, err = u.Commit()
	s.Failed(codes.AlreadyExists, err, "creating a file that came meanwhile")
	if text := s.Text(Someone, s.Path("late")); text != "first" {
		s.T.Errorf("%q", text)
	}
	_, err = s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("no/folder")}, "x")
	s.Failed(codes.NotFound, err, "writing where there is no folder")
}

func appendAndOffset(s *Sandbox) {
	s.Puts(Someone, s.Path("file"), "0123456789")
	mode := filev1.WriteMode_WRITE_MODE_APPEND
	if reply, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("file"), Mode: mode}, "ab"); err != nil || reply.Bytes != 2 || reply.File.Size != 12 || reply.Created {
		s.T.Errorf("%v %v", reply, err)
	}
	if reply, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("fresh"), Mode: mode}, "ab"); err != nil || !reply.Created {
		s.T.Errorf("%v %v", reply, err)
	}
	mode = filev1.WriteMode_WRITE_MODE_AT_OFFSET
	if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("file"), Mode: mode, Offset: 3}, "xyz"); err != nil {
		s.T.Error(err)
	}
	if text := s.Text(Someone, s.Path("file")); text != "012xyz6789ab" {
		s.T.Errorf("%q", text)
	}
	if reply, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("sparse"), Mode: mode, Offset: 1 << 30}, "end"); err != nil || reply.File.Size != 1<<30+3 {
		s.T.Errorf("%v %v", reply, err)
	}
	if download, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("sparse"), Offset: 1<<30 - 2}, nil); err != nil || string(download.Data) != "\x00\x00end" {
		s.T.Errorf("%v %v", download, err)
	}
}

func expectedTooMuch(s *Sandbox) {
	if s.Does(Someone, &filev1.DiskUsage{Path: s.Folder}).DiskLimitBytes == 0 {
		return // a disk without a limit takes all
	}
	u := s.Begin(&filev1.WriteFileOpen{User: Someone, Path: s.Path("file"), ExpectedBytes: 1 << 62})
	_, err := u.Answer()
	s.Failed(codes.ResourceExhausted, err, "announcing 2^62 bytes")
	if names := s.Names(Someone, &filev1.List{Path: s.Folder, Hidden: true}); len(names) != 0 {
		s.T.Errorf("%q", names)
	}
}

func extendedAttributes(s *Sandbox) {
	wanted := map[string]string{"color": "blue", "ä": "🙂"}
	if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("file"), Attributes: wanted}, "x"); err != nil {
		if frame.StatusOf(err) == codes.FailedPrecondition && strings.Contains(err.Error(), "no extended attributes") {
			return // a file system without them says so
		}
		s.T.Fatal(err)
	}
	s.Puts(Someone, s.Path("file"), "replaced")
	s.Does(Someone, &filev1.Copy{From: s.Path("file"), To: s.Path("copy")})
	for _, path := range []string{"file", "copy"} {
		got := s.Does(Someone, &filev1.Stat{Path: s.Path(path), Attributes: true}).File.Attributes
		if len(got) != 2 || got["color"] != "blue" || got["ä"] != "🙂" {
			s.T.Errorf("%s: %v", path, got)
		}
	}
	if got := s.Does(Someone, &filev1.Stat{Path: s.Path("file")}).File.Attributes; len(got) != 0 {
		s.T.Errorf("%v", got)
	}
}

func makeFolders(s *Sandbox) {
	s.Refuses(codes.NotFound, Someone, &filev1.MakeDirectory{Path: s.Path("a/b/c")})
	reply := s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("a/b/c"), Parents: true, Mode: 0o700})
	if !reply.Changed || reply.File.Mode != 0o700 || s.Does(Someone, &filev1.Stat{Path: s.Path("a/b")}).File.Mode != 0o755 {
		s.T.Errorf("%v", reply)
	}
	s.Refuses(codes.AlreadyExists, Someone, &filev1.MakeDirectory{Path: s.Path("a/b/c")})
	if reply = s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("a/b/c"), ExistOk: true}); reply.Changed || reply.File.Mode != 0o700 {
		s.T.Errorf("%v", reply)
	}
	s.Puts(Someone, s.Path("file"), "")
	s.Refuses(codes.AlreadyExists, Someone, &filev1.MakeDirectory{Path: s.Path("file"), ExistOk: true})
	s.Refuses(codes.FailedPrecondition, Someone, &filev1.MakeDirectory{Path: s.Path("file/x"), Parents: true})
	s.Refuses(codes.InvalidArgument, Someone, &filev1.MakeDirectory{Path: s.Path("x"), Mode: 0o17777})
	if info := s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("sticky"), Mode: 0o3775}).File; info.Mode != 0o3775 {
		s.T.Errorf("%v", info)
	}
}

func moves(s *Sandbox) {
	s.Puts(Someone, s.Path("a"), "a")
	s.Puts(Someone, s.Path("b"), "b")
	s.Refuses(codes.AlreadyExists, Someone, &filev1.Move{From: s.Path("a"), To: s.Path("b")})
	if reply := s.Does(Someone, &filev1.Move{From: s.Path("a"), To: s.Path("b"), Overwrite: true}); reply.File.Path != s.Path("b") || s.Text(Someone, s.Path("b")) != "a" {
		s.T.Errorf("%v", reply)
	}
	s.Refuses(codes.NotFound, Someone, &filev1.Move{From: s.Path("a"), To: s.Path("c")})
	s.Refuses(codes.NotFound, Someone, &filev1.Move{From: s.Path("b"), To: s.Path("x/y/c")})
	s.Does(Someone, &filev1.Move{From: s.Path("b"), To: s.Path("x/y/c"), Parents: true})
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("full")})
	s.Puts(Someone, s.Path("full/file"), "")
	s.Refuses(codes.FailedPrecondition, Someone, &filev1.Move{From: s.Path("x"), To: s.Path("full"), Overwrite: true})
	s.Refuses(codes.FailedPrecondition, Someone, &filev1.Move{From: s.Path("full/file"), To: s.Path("x"), Overwrite: true})
	s.Refuses(codes.InvalidArgument, Someone, &filev1.Move{From: s.Path("x"), To: s.Path("x/y/z")})
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("empty")})
	s.Does(Someone, &filev1.Move{From: s.Path("x"), To: s.Path("empty"), Overwrite: true})
	if text := s.Text(Someone, s.Path("empty/y/c")); text != "a" {
		s.T.Errorf("%q", text)
	}
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("link"), Target: "empty"})
	if reply := s.Does(Someone, &filev1.Move{From: s.Path("link"), To: s.Path("moved")}); reply.File.LinkTarget != "empty" {
		s.T.Errorf("%v", reply)
	}
	// /dev/shm is another file system.
	shm := "/dev/shm/" + strings.ReplaceAll(s.Path("moved"), "/", "-")
	mode := uint32(0o751)
	s.Does(Someone, &filev1.Chmod{Path: s.Path("empty/y/c"), Mode: &mode})
	s.Does(Someone, &filev1.Move{From: s.Path("empty"), To: shm})
	if info := s.Does(Someone, &filev1.Stat{Path: shm + "/y/c"}).File; info.Mode != 0o751 || s.Text(Someone, shm+"/y/c") != "a" {
		s.T.Errorf("%v", info)
	}
	s.Refuses(codes.NotFound, Someone, &filev1.Stat{Path: s.Path("empty")})
	s.Does(Someone, &filev1.Move{From: shm, To: s.Path("back")})
	s.Refuses(codes.NotFound, Someone, &filev1.Stat{Path: shm})
	if text := s.Text(Someone, s.Path("back/y/c")); text != "a" {
		s.T.Errorf("%q", text)
	}
}

func copies(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("from/a/b"), Parents: true})
	s.Puts(Someone, s.Path("from/a/file"), "text")
	mode := uint32(0o640)
	s.Does(Someone, &filev1.Chmod{Path: s.Path("from/a/file"), Mode: &mode})
	mode = 0o555
	s.Does(Someone, &filev1.Chmod{Path: s.Path("from/a"), Mode: &mode})
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("from/link"), Target: "/etc/shadow"})
	if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("from/sparse"), Mode: filev1.WriteMode_WRITE_MODE_AT_OFFSET, Offset: 256 << 20}, "end"); err != nil {
		s.T.Fatal(err)
	}
	s.Refuses(codes.FailedPrecondition, Someone, &filev1.Copy{From: s.Path("from"), To: s.Path("to")})
	reply := s.Does(Someone, &filev1.Copy{From: s.Path("from"), To: s.Path("to"), Recursive: true})
	if len(reply.Problems) != 0 || reply.File.Path != s.Path("to") {
		s.T.Errorf("%v", reply)
	}
	wanted := []string{"a", "a/b", "a/file", "link", "sparse"}
	if names := s.Names(Someone, &filev1.List{Path: s.Path("to"), Depth: 9}); !slices.Equal(names, wanted) {
		s.T.Errorf("%q", names)
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("to/a/file")}).File; info.Mode != 0o640 || s.Text(Someone, s.Path("to/a/file")) != "text" {
		s.T.Errorf("%v", info)
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("to/a")}).File; info.Mode != 0o555 {
		s.T.Errorf("%v", info)
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("to/link")}).File; info.LinkTarget != "/etc/shadow" {
		s.T.Errorf("%v", info)
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("to/sparse")}).File; info.Size != 256<<20+3 {
		s.T.Errorf("%v", info)
	}
	taken := func(path string) string {
		return strings.TrimSpace(s.Shell("du -k '" + s.Path(path) + "' | cut -f1"))
	}
	// Not everywhere is it told what a file takes.
	if before, after := taken("from/sparse"), taken("to/sparse"); len(after) > max(len(before), 4) {
		s.T.Errorf("the copy takes %s KiB, the original %s", after, before)
	}
	s.Refuses(codes.AlreadyExists, Someone, &filev1.Copy{From: s.Path("from/sparse"), To: s.Path("to/sparse")})
	s.Puts(Someone, s.Path("small"), "small")
	s.Does(Someone, &filev1.Copy{From: s.Path("small"), To: s.Path("to/sparse"), Overwrite: true})
	if text := s.Text(Someone, s.Path("to/sparse")); text != "small" {
		s.T.Errorf("%d bytes", len(text))
	}
	s.Refuses(codes.InvalidArgument, Someone, &filev1.Copy{From: s.Path("small"), To: s.Path("small"), Overwrite: true})
	mode = 0o755
	s.Does(Someone, &filev1.Chmod{Path: s.Path("from/a"), Mode: &mode})
	s.Does(Someone, &filev1.Chmod{Path: s.Path("to/a"), Mode: &mode})
}

func copyIntoItself(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("a/b"), Parents: true})
	s.Puts(Someone, s.Path("a/file"), "x")
	s.Does(Someone, &filev1.Copy{From: s.Path("a"), To: s.Path("a/b/c"), Recursive: true})
	if names := s.Names(Someone, &filev1.List{Path: s.Path("a"), Depth: 99}); !slices.Equal(names, []string{"b", "b/c", "b/c/b", "b/c/file", "file"}) {
		s.T.Errorf("%q", names)
	}
	s.Refuses(codes.InvalidArgument, Someone, &filev1.Copy{From: s.Path("a"), To: s.Path("a"), Recursive: true, Overwrite: true})
}

func removes(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("kept")})
	s.Puts(Someone, s.Path("kept/file"), "x")
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("a/b/c"), Parents: true})
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("a/b/link"), Target: s.Path("kept")})
	s.Refuses(codes.FailedPrecondition, Someone, &filev1.Remove{Path: s.Path("a")})
	if !s.Does(Someone, &filev1.Remove{Path: s.Path("a"), Recursive: true}).Changed {
		s.T.Error("nothing changed")
	}
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("link"), Target: "kept"})
	s.Does(Someone, &filev1.Remove{Path: s.Path("link"), Recursive: true})
	if text := s.Text(Someone, s.Path("kept/file")); text != "x" {
		s.T.Errorf("%q", text)
	}
	s.Refuses(codes.NotFound, Someone, &filev1.Remove{Path: s.Path("a")})
	if s.Does(Someone, &filev1.Remove{Path: s.Path("a"), Force: true}).Changed {
		s.T.Error("changed")
	}
	s.Does("root", &filev1.MakeDirectory{Path: s.Path("kept/roots")})
	s.Puts("root", s.Path("kept/roots/file"), "x")
	s.Refuses(codes.PermissionDenied, Someone, &filev1.Remove{Path: s.Path("kept"), Recursive: true})
	for _, path := range []string{"/", s.Path("kept/."), s.Path("kept/..")} {
		s.Refuses(codes.InvalidArgument, Someone, &filev1.Remove{Path: path, Recursive: true})
	}
	s.Does("root", &filev1.Remove{Path: s.Path("kept"), Recursive: true})
}

func deep(s *Sandbox) {
	const depth = 10_000
	var entries []entry
	for below := 1000; below <= depth; below += 1000 {
		entries = append(entries, entry{name: strings.Repeat("d/", below), kind: tar.TypeDir, mode: 0o755})
	}
	if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("deep"), Archive: plainTar}, archive(s.T, entries...)); err != nil {
		s.T.Fatal(err)
	}
	count, deepest := 0, 0
	list := &filev1.List{Path: s.Path("deep"), Depth: depth + 5}
	for pages := 0; ; pages++ {
		reply := s.Does(Someone, list)
		count += len(reply.Entries)
		for _, one := range reply.Entries {
			deepest = max(deepest, len(one.Path))
		}
		if list.After = reply.Next; reply.Next == "" || pages > 2 {
			break
		}
	}
	if count < 500 {
		s.T.Errorf("%d folders, the deepest of a path of %d bytes", count, deepest)
	}
	began := time.Now()
	if reply := s.Does(Someone, &filev1.Find{Path: s.Path("deep"), Name: "nothing*"}); len(reply.Entries) != 0 || len(reply.Problems) != 0 {
		s.T.Errorf("%v", reply)
	}
	s.T.Logf("searched after %s", time.Since(began))
	began = time.Now()
	s.Does(Someone, &filev1.Remove{Path: s.Path("deep"), Recursive: true})
	s.T.Logf("removed after %s", time.Since(began))
	s.Refuses(codes.NotFound, Someone, &filev1.Stat{Path: s.Path("deep")})
}

func chmods(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("a/b"), Parents: true})
	s.Puts(Someone, s.Path("a/b/file"), "x")
	s.Puts(Someone, s.Path("outside"), "x")
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("a/link"), Target: s.Path("outside")})
	mode := uint32(0o700)
	s.Does(Someone, &filev1.Chmod{Path: s.Path("a"), Mode: &mode, Recursive: true})
	for _, path := range []string{"a", "a/b", "a/b/file"} {
		if info := s.Does(Someone, &filev1.Stat{Path: s.Path(path)}).File; info.Mode != 0o700 {
			s.T.Errorf("%s: %v", path, info)
		}
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("outside")}).File; info.Mode != 0o644 {
		s.T.Errorf("%v", info)
	}
	s.Refuses(codes.PermissionDenied, Someone, &filev1.Chmod{Path: s.Path("outside"), Owner: "root"})
	s.Does("root", &filev1.Chmod{Path: s.Path("a"), Owner: "daemon", Group: "12345", Recursive: true})
	for _, path := range []string{"a", "a/b", "a/b/file", "a/link"} {
		if info := s.Does("root", &filev1.Stat{Path: s.Path(path)}).File; info.Owner != "daemon" || info.Gid != 12345 {
			s.T.Errorf("%s: %v", path, info)
		}
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("outside")}).File; info.Uid != 12321 {
		s.T.Errorf("%v", info)
	}
	when := int64(1_234_567_890_123_456_789)
	if info := s.Does(Someone, &filev1.Chmod{Path: s.Path("outside"), ModifiedUnixNs: &when}).File; info.ModifiedUnixNs/1000 != when/1000 || info.Mode != 0o644 {
		s.T.Errorf("%v", info)
	}
	s.Refuses(codes.InvalidArgument, "root", &filev1.Chmod{Path: s.Path("a"), Owner: "nobody-knows-me"})
	mode = 0o10000
	s.Refuses(codes.InvalidArgument, "root", &filev1.Chmod{Path: s.Path("a"), Mode: &mode})
}

func listing(s *Sandbox) {
	var entries []entry
	for i := range 500 {
		entries = append(entries, entry{name: fmt.Sprintf("f%03d", i)})
	}
	entries = append(entries, entry{name: "f1/x", text: "x"}, entry{name: "f1.x"}, entry{name: "f1/a/b"}, entry{name: ".hidden/x"}, entry{name: "f1/.y"})
	if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Folder, Archive: plainTar}, archive(s.T, entries...)); err != nil {
		s.T.Fatal(err)
	}
	all := s.Names(Someone, &filev1.List{Path: s.Folder, Depth: 5, Hidden: true})
	order := func(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }
	if len(all) != 508 || !slices.IsSortedFunc(all, order) {
		s.T.Errorf("%d: %q", len(all), all)
	}
	for _, limit := range []uint32{1, 2, 7, 100, 507, 508, 509} {
		if paged := s.Names(Someone, &filev1.List{Path: s.Folder, Depth: 5, Hidden: true, Limit: limit}); !slices.Equal(paged, all) {
			s.T.Errorf("in pages of %d: %d: %q", limit, len(paged), paged)
		}
	}
	if plain := s.Names(Someone, &filev1.List{Path: s.Folder, Depth: 5}); len(plain) != 505 {
		s.T.Errorf("%d: %q", len(plain), plain)
	}
	if one := s.Names(Someone, &filev1.List{Path: s.Folder, Depth: 1}); len(one) != 502 {
		s.T.Errorf("%d: %q", len(one), one)
	}
	// A cursor whose file is gone leads to what comes after it.
	reply := s.Does(Someone, &filev1.List{Path: s.Folder, Depth: 5, Limit: 4})
	last := reply.Entries[3].Path
	s.Does(Someone, &filev1.Remove{Path: last, Recursive: true})
	next := s.Does(Someone, &filev1.List{Path: s.Folder, Depth: 5, Limit: 1, After: reply.Next}).Entries[0].Path
	if order(last, next) >= 0 {
		s.T.Errorf("%q after %q", next, last)
	}
	s.Refuses(codes.InvalidArgument, Someone, &filev1.List{Path: s.Folder, After: "no cursor"})
}

func findsNames(s *Sandbox) {
	var entries []entry
	for _, name := range []string{"a.py", "b.txt", "src/a.py", "src/test_a.py", "src/deep/er/test_b.py", ".git/c.py", "src/deep/d"} {
		entries = append(entries, entry{name: name, text: "x"})
	}
	if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Folder, Archive: plainTar}, archive(s.T, entries...)); err != nil {
		s.T.Fatal(err)
	}
	for _, one := range []struct {
		find   *filev1.Find
		wanted string
	}{
		{&filev1.Find{Name: "*.py"}, "a.py src/a.py src/deep/er/test_b.py src/test_a.py"},
		{&filev1.Find{Name: "*.py", Hidden: true}, ".git/c.py a.py src/a.py src/deep/er/test_b.py src/test_a.py"},
		{&filev1.Find{Name: "**/test_*.py"}, "src/deep/er/test_b.py src/test_a.py"},
		{&filev1.Find{Name: "src/*.py"}, "src/a.py src/test_a.py"},
		{&filev1.Find{Name: "src/**/*.py"}, "src/a.py src/deep/er/test_b.py src/test_a.py"},
		{&filev1.Find{Name: "**/deep/**"}, "src/deep src/deep/d src/deep/er src/deep/er/test_b.py"},
		{&filev1.Find{Type: filev1.FileType_FILE_TYPE_DIRECTORY}, "src src/deep src/deep/er"},
		{&filev1.Find{Name: "[ab].*"}, "a.py b.txt src/a.py"},
	} {
		one.find.Path = s.Folder
		var got []string
		for _, found := range s.Does(Someone, one.find).Entries {
			got = append(got, strings.TrimPrefix(found.Path, s.Folder+"/"))
		}
		if strings.Join(got, " ") != one.wanted {
			s.T.Errorf("%v: %q (expected: %s)", one.find, got, one.wanted)
		}
	}
	reply := s.Does(Someone, &filev1.Find{Path: s.Folder, Limit: 2})
	if len(reply.Entries) != 2 || len(reply.Problems) != 1 {
		s.T.Errorf("%v", reply)
	}
	s.Refuses(codes.InvalidArgument, Someone, &filev1.Find{Path: s.Folder, Name: "[a"})
	s.Refuses(codes.NotFound, Someone, &filev1.Find{Path: s.Path("missing"), Name: "*"})
}

func findsContents(s *Sandbox) {
	s.Puts(Someone, s.Path("a.txt"), "one\ntwo needle two\r\nNEEDLE\nlast ä needle")
	s.Puts(Someone, s.Path("binary"), "needle\x00needle\n")
	s.Puts(Someone, s.Path("long"), strings.Repeat("x", 1_000_000)+"needle"+strings.Repeat("y", 1_000_000)+"\nneedle\n")
	s.Puts("root", s.Path("secret"), "needle")
	mode := uint32(0o600)
	s.Does("root", &filev1.Chmod{Path: s.Path("secret"), Mode: &mode})
	check := func(find *filev1.Find, wanted ...string) *filev1.FileReply {
		s.T.Helper()
		find.Path = s.Folder
		reply := s.Does(Someone, find)
		var got []string
		for _, m := range reply.Matches {
			if m.Text[m.From:m.From+m.Length] == "" || len([]rune(m.Text)) > 2000 {
				s.T.Errorf("%v", m)
			}
			got = append(got, fmt.Sprintf("%s:%d:%s", strings.TrimPrefix(m.Path, s.Folder+"/"), m.Line, m.Text[m.From:m.From+m.Length]))
		}
		if !slices.Equal(got, wanted) {
			s.T.Errorf("%v: %q (expected: %q)", find, got, wanted)
		}
		return reply
	}
	reply := check(&filev1.Find{Content: "needle"}, "a.txt:2:needle", "a.txt:4:needle", "long:1:needle", "long:2:needle")
	if len(reply.Problems) != 1 || !strings.Contains(reply.Problems[0], "secret") || reply.Matches[0].Text != "two needle two" {
		s.T.Errorf("%v", reply)
	}
	check(&filev1.Find{Content: "needle", IgnoreCase: true, Name: "*.txt"}, "a.txt:2:needle", "a.txt:3:NEEDLE", "a.txt:4:needle")
	check(&filev1.Find{Content: `^(one|N\w+)$`, RegularExpression: true}, "a.txt:1:one", "a.txt:3:NEEDLE")
	check(&filev1.Find{Content: "e.dle", RegularExpression: true, Limit: 1}, "a.txt:2:eedle")
	s.Refuses(codes.InvalidArgument, Someone, &filev1.Find{Path: s.Folder, Content: "(", RegularExpression: true})
	if reply := s.Does(Someone, &filev1.Find{Path: s.Path("a.txt"), Content: "two"}); len(reply.Matches) != 1 || reply.Matches[0].Path != s.Path("a.txt") {
		s.T.Errorf("%v", reply)
	}
}

func replaces(s *Sandbox) {
	s.Puts(Someone, s.Path("a"), "x1 x2\nx3")
	s.Puts(Someone, s.Path("b"), "none")
	s.Puts(Someone, s.Path("binary"), "x\x00")
	s.Puts("root", s.Path("roots"), "x")
	paths := []string{s.Path("a"), s.Path("b"), s.Path("binary"), s.Path("roots"), s.Path("missing")}
	reply := s.Does(Someone, &filev1.Replace{Paths: paths, Pattern: "x", Replacement: "$1"})
	if len(reply.Replaced) != 5 || reply.Replaced[0].Count != 3 || reply.Replaced[0].Error != "" || reply.Replaced[1].Count != 0 || reply.Replaced[1].Error != "" ||
		reply.Replaced[2].Error == "" || reply.Replaced[3].Error == "" || reply.Replaced[4].Error == "" || !reply.Changed {
		s.T.Errorf("%v", reply)
	}
	if text := s.Text(Someone, s.Path("a")); text != "$11 $12\n$13" {
		s.T.Errorf("%q", text)
	}
	s.Does(Someone, &filev1.Replace{Paths: paths[:1], Pattern: `(?m)^\$(\d)`, Replacement: "<$1>", RegularExpression: true})
	if text := s.Text(Someone, s.Path("a")); text != "<1>1 $12\n<1>3" {
		s.T.Errorf("%q", text)
	}
	s.Puts(Someone, s.Path("many"), strings.Repeat("a", 1<<20))
	reply = s.Does(Someone, &filev1.Replace{Paths: []string{s.Path("many")}, Pattern: "a", Replacement: strings.Repeat("b", 10_000)})
	if reply.Replaced[0].Error == "" || reply.Changed {
		s.T.Errorf("%v", reply)
	}
	s.Refuses(codes.InvalidArgument, Someone, &filev1.Replace{Paths: paths, Pattern: "(", RegularExpression: true})
}

type entry struct {
	name string
	kind byte
	text string
	link string
	mode int64
}

func archive(t *testing.T, entries ...entry) string {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		header := &tar.Header{Name: e.name, Typeflag: e.kind, Size: int64(len(e.text)), Linkname: e.link, Mode: e.mode, Uid: 0, Gid: 0}
		if e.kind == 0 {
			header.Typeflag = tar.TypeReg
		}
		if e.mode == 0 {
			header.Mode = 0o644
			if e.kind == tar.TypeDir {
				header.Mode = 0o755
			}
		}
		if err := w.WriteHeader(header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func archives(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("from/a/b"), Parents: true})
	s.Puts(Someone, s.Path("from/file"), "text")
	large := string(pattern(300_000))
	s.Puts(Someone, s.Path("from/a/large"), large)
	s.Puts(Someone, s.Path("from/a/"+strings.Repeat("n", 250)), "long")
	s.Puts(Someone, s.Path("from/ä\n🙂"), "")
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("from/link"), Target: "/etc/shadow"})
	mode := uint32(0o555)
	s.Does(Someone, &filev1.Chmod{Path: s.Path("from/a/b"), Mode: &mode})
	mode = 0o750
	s.Does(Someone, &filev1.Chmod{Path: s.Path("from/file"), Mode: &mode})
	when := int64(1_600_000_000_000_000_000)
	s.Does(Someone, &filev1.Chmod{Path: s.Path("from/file"), ModifiedUnixNs: &when})
	for _, format := range []filev1.ArchiveFormat{plainTar, zippedTar} {
		download, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("from"), Archive: format}, nil)
		if err != nil || download.File.GetType() != filev1.FileType_FILE_TYPE_DIRECTORY {
			s.T.Fatalf("%v %v", download, err)
		}
		to := s.Path("to-" + format.String())
		reply, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: to, Archive: format}, string(download.Data))
		if err != nil || reply.Files != 7 || reply.Bytes != 4+300_000+4 || !reply.Created {
			s.T.Fatalf("%v %v", reply, err)
		}
		wanted := s.Names(Someone, &filev1.List{Path: s.Path("from"), Depth: 9})
		if names := s.Names(Someone, &filev1.List{Path: to, Depth: 9}); !slices.Equal(names, wanted) {
			s.T.Errorf("%q", names)
		}
		if s.Text(Someone, to+"/a/large") != large || s.Text(Someone, to+"/file") != "text" {
			s.T.Error("other contents")
		}
		file := s.Does(Someone, &filev1.Stat{Path: to + "/file"}).File
		folder := s.Does(Someone, &filev1.Stat{Path: to + "/a/b"}).File
		link := s.Does(Someone, &filev1.Stat{Path: to + "/link"}).File
		if file.Mode != 0o750 || file.ModifiedUnixNs != when || folder.Mode != 0o555 || link.LinkTarget != "/etc/shadow" || file.Uid != 12321 {
			s.T.Errorf("%v, %v, %v", file, folder, link)
		}
		// Once more over what is there.
		if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: to, Archive: format}, string(download.Data)); err != nil {
			s.T.Error(err)
		}
	}
	one, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("from/file"), Archive: plainTar}, nil)
	if err != nil {
		s.T.Fatal(err)
	}
	if header, err := tar.NewReader(bytes.NewReader(one.Data)).Next(); err != nil || header.Name != "file" || header.Size != 4 {
		s.T.Errorf("%v %v", header, err)
	}
	_, err = s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("from"), Archive: plainTar, Offset: 1}, nil)
	s.Failed(codes.InvalidArgument, err, "an archive from an offset")
}

func tarSlip(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("outside")})
	s.Puts(Someone, s.Path("outside/file"), "kept")
	outside := s.Path("outside")
	for name, one := range map[string]struct {
		code    codes.Code
		entries []entry
	}{
		"dot dot":              {codes.InvalidArgument, []entry{{name: "../outside/x", text: "x"}}},
		"dot dot within":       {codes.InvalidArgument, []entry{{name: "a/../../outside/x", text: "x"}}},
		"absolute":             {codes.InvalidArgument, []entry{{name: outside + "/x", text: "x"}}},
		"symlink, then file":   {codes.FailedPrecondition, []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l/x", text: "x"}}},
		"symlink, then folder": {codes.FailedPrecondition, []entry{{name: "l", kind: tar.TypeSymlink, link: "../outside"}, {name: "l/x", kind: tar.TypeDir}}},
		"folder over symlink":  {codes.FailedPrecondition, []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "l", kind: tar.TypeDir}}},
		"hard link outside":    {codes.InvalidArgument, []entry{{name: "h", kind: tar.TypeLink, link: "../outside/file"}, {name: "h", text: "x"}}},
		"hard link absolute":   {codes.InvalidArgument, []entry{{name: "h", kind: tar.TypeLink, link: outside + "/file"}}},
		"hard link by symlink": {codes.FailedPrecondition, []entry{{name: "l", kind: tar.TypeSymlink, link: outside}, {name: "h", kind: tar.TypeLink, link: "l/file"}}},
		"device":               {codes.InvalidArgument, []entry{{name: "d", kind: tar.TypeChar}}},
		"block device":         {codes.InvalidArgument, []entry{{name: "d", kind: tar.TypeBlock}}},
		"FIFO":                 {codes.InvalidArgument, []entry{{name: "d", kind: tar.TypeFifo}}},
		"file as folder":       {codes.FailedPrecondition, []entry{{name: "f", text: "x"}, {name: "f/x", text: "x"}}},
	} {
		to := s.Path("into-" + strings.ReplaceAll(name, " ", "-"))
		_, err := s.Write(&filev1.WriteFileOpen{User: "root", Path: to, Archive: plainTar}, archive(s.T, one.entries...))
		s.Failed(one.code, err, name)
		if names := s.Names(Someone, &filev1.List{Path: outside}); !slices.Equal(names, []string{"file"}) {
			s.T.Errorf("%s: %q", name, names)
		}
	}
	// A symlink in the place of a file is replaced, not followed; a hard link within the folder is fine, and not written through.
	if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("fine"), Archive: plainTar}, archive(s.T,
		entry{name: "l", kind: tar.TypeSymlink, link: outside + "/file"}, entry{name: "l", text: "own"},
		entry{name: "./a/f", text: "first"}, entry{name: "a/h", kind: tar.TypeLink, link: "a/f"}, entry{name: "a/h", text: "second"},
		entry{name: "s", text: "x", mode: 0o6755})); err != nil {
		s.T.Fatal(err)
	}
	if a, b, c := s.Text(Someone, s.Path("fine/l")), s.Text(Someone, s.Path("fine/a/f")), s.Text(Someone, s.Path("fine/a/h")); a != "own" || b != "first" || c != "second" {
		s.T.Errorf("%q %q %q", a, b, c)
	}
	if info := s.Does(Someone, &filev1.Stat{Path: s.Path("fine/s")}).File; info.Mode != 0o755 {
		s.T.Errorf("set-id bits of an archive: %v", info)
	}
	if text := s.Text(Someone, outside+"/file"); text != "kept" {
		s.T.Errorf("%q", text)
	}
}

func cutArchive(s *Sandbox) {
	whole := archive(s.T, entry{name: "a", text: strings.Repeat("x", 5000)})
	for _, size := range []int{100, 600, 3000} {
		_, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("out"), Archive: plainTar}, whole[:size])
		s.Failed(codes.InvalidArgument, err, fmt.Sprintf("an archive cut after %d bytes", size))
	}
	_, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("out"), Archive: zippedTar}, whole)
	s.Failed(codes.InvalidArgument, err, "an archive that is not compressed")
	if names := s.Names(Someone, &filev1.List{Path: s.Path("out"), Hidden: true}); len(names) != 0 {
		s.T.Errorf("%q", names)
	}
	u := s.Begin(&filev1.WriteFileOpen{User: Someone, Path: s.Path("out"), Archive: plainTar})
	u.Data([]byte(whole[:3000]))
	s.Eventually("the entry is begun", func() error {
		if names := s.Names(Someone, &filev1.List{Path: s.Path("out"), Hidden: true}); len(names) != 1 {
			return fmt.Errorf("%q", names)
		}
		return nil
	})
	u.BreakOff()
	s.Eventually("nothing of a broken entry is left", func() error {
		if names := s.Names(Someone, &filev1.List{Path: s.Path("out"), Hidden: true}); len(names) != 0 {
			return fmt.Errorf("%q", names)
		}
		return nil
	})
	if reply, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("out"), Archive: plainTar}, archive(s.T)); err != nil || reply.Files != 0 {
		s.T.Errorf("%v %v", reply, err)
	}
	var bomb bytes.Buffer
	zip := gzip.NewWriter(&bomb)
	w := tar.NewWriter(zip)
	_ = w.WriteHeader(&tar.Header{Name: "bomb", Size: 1 << 50, Mode: 0o644})
	_, _ = w.Write(make([]byte, 1<<20))
	_ = zip.Flush()
	if s.Does(Someone, &filev1.DiskUsage{Path: s.Folder}).DiskLimitBytes != 0 {
		_, err = s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("out"), Archive: zippedTar}, bomb.String())
		s.Failed(codes.ResourceExhausted, err, "an entry larger than the disk")
	}
}

func watches(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("folder")})
	w := s.Watches(&filev1.WatchFilesRequest{User: Someone, Path: s.Path("folder")})
	defer w.End()
	s.Puts(Someone, s.Path("folder/a"), "x")
	if event := w.Until(create, "a"); event.Path != s.Path("folder/a") || event.FileType != filev1.FileType_FILE_TYPE_FILE || event.AtUnixMs == 0 {
		s.T.Errorf("%v", event)
	}
	w.Until(write, "a")
	seen := len(w.Seen)
	s.Puts(Someone, s.Path("folder/a"), "y")
	w.Until(write, "a")
	for _, event := range w.Seen[seen:] {
		if event.Type == create || strings.HasPrefix(event.Name, ".") {
			s.T.Errorf("a replaced file is told as %v", event)
		}
	}
	s.Shell("echo z >> '" + s.Path("folder/a") + "'")
	w.Until(write, "a")
	mode := uint32(0o600)
	s.Does(Someone, &filev1.Chmod{Path: s.Path("folder/a"), Mode: &mode})
	w.Until(chmod, "a")
	s.Does(Someone, &filev1.Move{From: s.Path("folder/a"), To: s.Path("folder/b")})
	w.Until(rename, "a")
	w.Until(create, "b")
	s.Does(Someone, &filev1.Remove{Path: s.Path("folder/b")})
	w.Until(remove, "b")
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("folder/below")})
	if event := w.Until(create, "below"); event.FileType != filev1.FileType_FILE_TYPE_DIRECTORY {
		s.T.Errorf("%v", event)
	}
	// Not recursive: nothing is told of what is in a folder.
	s.Puts(Someone, s.Path("folder/below/x"), "x")
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("folder/last")})
	w.Until(create, "last")
	for _, event := range w.Seen {
		if strings.HasPrefix(event.Name, "below/") {
			s.T.Errorf("%v", event)
		}
	}
	s.Puts(Someone, s.Path("folder/file"), "x")
	one := s.Watches(&filev1.WatchFilesRequest{User: Someone, Path: s.Path("folder/file")})
	defer one.End()
	s.Puts(Someone, s.Path("folder/other"), "x")
	s.Puts(Someone, s.Path("folder/file"), "y")
	if event, err := one.Next(); err != nil || event.Name != "file" {
		s.T.Errorf("%v %v", event, err)
	}
	_, err := s.TriesToWatch(&filev1.WatchFilesRequest{User: Someone, Path: s.Path("missing")})
	s.Failed(codes.NotFound, err, "watching nothing")
}

func watchesNewFolders(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("w/a/b"), Parents: true})
	w := s.Watches(&filev1.WatchFilesRequest{User: Someone, Path: s.Path("w"), Recursive: true})
	defer w.End()
	s.Puts(Someone, s.Path("w/a/b/file"), "x")
	w.Until(create, "a/b/file")
	// Everything that comes to be is told, whether before or after its folder is watched, and once.
	s.Shell("cd '" + s.Path("w") + "' && for i in 1 2 3 4 5; do mkdir -p n$i/x/y && echo 1 > n$i/one && echo 2 > n$i/x/y/two; done && chmod -R a+rwX .")
	for i := range 5 {
		w.Until(create, fmt.Sprintf("n%d", i+1))
	}
	wanted := map[string]bool{}
	for i := 1; i <= 5; i++ {
		for _, name := range []string{"x", "x/y", "one", "x/y/two"} {
			wanted[fmt.Sprintf("n%d/%s", i, name)] = true
		}
	}
	count := map[string]int{}
	for _, event := range w.Seen {
		if event.Type == create {
			count[event.Name]++
		}
	}
	missing := func() string {
		for name := range wanted {
			if count[name] == 0 {
				return name
			}
		}
		return ""
	}
	for missing() != "" {
		event, err := w.Next()
		if err != nil {
			s.T.Fatalf("%s is not told: %v; seen: %v", missing(), err, w.Seen)
		}
		if event.Type == create {
			count[event.Name]++
		}
	}
	s.Puts(Someone, s.Path("w/n5/x/y/three"), "x")
	w.Until(create, "n5/x/y/three")
	for _, event := range w.Seen {
		if event.Type == create {
			count[event.Name]++
		}
	}
	// A folder that is renamed is told under its new name.
	s.Does(Someone, &filev1.Move{From: s.Path("w/a"), To: s.Path("w/c")})
	w.Until(rename, "a")
	w.Until(create, "c")
	s.Puts(Someone, s.Path("w/c/b/late"), "x")
	w.Until(create, "c/b/late")
	s.Does(Someone, &filev1.Remove{Path: s.Path("w/c"), Recursive: true})
	w.Until(remove, "c")
	creations := map[string]int{}
	for _, event := range w.Seen {
		if event.Type == create && strings.HasPrefix(event.Name, "n") {
			creations[event.Name]++
		}
	}
	for name, n := range creations {
		if n != 1 {
			s.T.Errorf("%s was told %d times", name, n)
		}
	}
}

func watchEnds(s *Sandbox) {
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("folder")})
	w := s.Watches(&filev1.WatchFilesRequest{User: Someone, Path: s.Path("folder"), Recursive: true})
	s.Does(Someone, &filev1.Remove{Path: s.Path("folder")})
	for {
		if _, err := w.Next(); err != nil {
			s.Failed(codes.NotFound, err, "the end of a watch")
			break
		}
	}
	s.Does("root", &filev1.MakeDirectory{Path: s.Path("private"), Mode: 0o700})
	_, err := s.TriesToWatch(&filev1.WatchFilesRequest{User: Someone, Path: s.Path("private")})
	s.Failed(codes.PermissionDenied, err, "watching a folder of root's")
}

func swapRace(s *Sandbox) {
	// Somebody swaps a folder of theirs for a symlink to root's, again and again, while root's file is asked for by way of it as them.
	s.Does("root", &filev1.MakeDirectory{Path: s.Path("roots"), Mode: 0o700})
	s.Puts("root", s.Path("roots/file"), "secret")
	s.Does(Someone, &filev1.MakeDirectory{Path: s.Path("mine")})
	s.Puts(Someone, s.Path("mine/file"), "mine")
	s.Does(Someone, &filev1.MakeSymlink{Path: s.Path("link"), Target: "roots"})
	stop := make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Add(1)
	go func() {
		defer swapping.Done()
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, _ = s.Call(Someone, &filev1.Move{From: s.Path("mine"), To: s.Path("aside")})
			_, _ = s.Call(Someone, &filev1.Move{From: s.Path("link"), To: s.Path("mine")})
			_, _ = s.Call(Someone, &filev1.Move{From: s.Path("mine"), To: s.Path("link")})
			_, _ = s.Call(Someone, &filev1.Move{From: s.Path("aside"), To: s.Path("mine")})
		}
	}()
	for range 150 {
		if download, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: s.Path("mine/file")}, nil); err == nil && string(download.Data) == "secret" {
			s.T.Error("read a file of root's")
		}
		_, _ = s.Write(&filev1.WriteFileOpen{User: Someone, Path: s.Path("mine/file")}, "mine")
		_, _ = s.Call(Someone, &filev1.Remove{Path: s.Path("mine/other"), Recursive: true})
		mode := uint32(0o755)
		_, _ = s.Call("root", &filev1.Chmod{Path: s.Folder, Mode: &mode, Recursive: false})
	}
	close(stop)
	swapping.Wait()
	if text := s.Text("root", s.Path("roots/file")); text != "secret" {
		s.T.Errorf("%q", text)
	}
	if names := s.Names("root", &filev1.List{Path: s.Path("roots"), Hidden: true}); !slices.Equal(names, []string{"file"}) {
		s.T.Errorf("%q", names)
	}
}

func cancelledSearch(s *Sandbox) {
	s.Puts(Someone, s.Path("text"), strings.Repeat("no such thing here\n", 200_000))
	for range 30 {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Millisecond)
		request := &filev1.FileRequest{User: Someone, Operation: &filev1.FileRequest_Find{Find: &filev1.Find{Path: "/", Content: "(a|b|c)+needle$", RegularExpression: true, Hidden: true}}}
		err := frame.Call(ctx, s.Session, "atoll.agent.v1.Agent.File", request, &filev1.FileReply{})
		cancel()
		if err == nil || errors.Is(err, io.EOF) {
			s.T.Fatalf("the search ended: %v", err)
		}
	}
	// More of them than may run at once: they have ended, or this would wait for ever.
	if reply := s.Does(Someone, &filev1.Find{Path: s.Folder, Name: "text"}); len(reply.Entries) != 1 {
		s.T.Errorf("%v", reply)
	}
}

func manyCalls(s *Sandbox) {
	var group sync.WaitGroup
	failures := make(chan error, 1000)
	for i := range 40 {
		group.Add(1)
		go func() {
			defer group.Done()
			path := s.Path(fmt.Sprintf("file-%d", i))
			data := string(pattern(50_000 + i))
			if _, err := s.Write(&filev1.WriteFileOpen{User: Someone, Path: path}, data); err != nil {
				failures <- err
				return
			}
			download, err := s.Read(&filev1.ReadFileRequest{User: Someone, Path: path}, nil)
			if err != nil || string(download.Data) != data {
				failures <- fmt.Errorf("%s: %v", path, err)
			}
		}()
	}
	group.Wait()
	close(failures)
	for err := range failures {
		s.T.Error(err)
	}
}

func diskUsage(s *Sandbox) {
	s.Puts(Someone, s.Path("file"), string(pattern(1<<20)))
	reply := s.Does(Someone, &filev1.DiskUsage{Path: s.Folder})
	if reply.DiskUsedBytes == 0 && reply.DiskLimitBytes != 0 || reply.DiskLimitBytes != 0 && reply.DiskUsedBytes > reply.DiskLimitBytes {
		s.T.Errorf("%v", reply)
	}
}
