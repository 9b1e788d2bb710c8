package box

import (
	"google.golang.org/protobuf/proto"

	"atoll/node/gen/enginev1"
)

// Backed is a box as it stands in a backup: paused.
type Backed struct {
	ID string
	// Snapshot is what it is paused to; empty for a box that was not paused when its record was read.
	Snapshot string
	// ImageDigest is of the image that it is made of.
	ImageDigest string

	record *record
}

// Backup reads the record of a box for a backup. It returns false for a container of another box, and for the node's own. Whether the box was paused is
// told by who has its sandbox on record: PausedTo makes it so.
func Backup(text []byte) (Backed, bool, error) {
	r, err := decodeRecord(text)
	if err != nil || r.owner != "" || r.build {
		return Backed{}, false, err
	}
	return Backed{ID: r.box.GetBoxId(), Snapshot: r.box.GetPauseSnapshotId(), ImageDigest: r.box.GetSpec().GetImageDigest(), record: r}, true, nil
}

// PausedTo is the box, paused to one of its pauses.
func (b Backed) PausedTo(id string, bytes uint64) Backed {
	r := *b.record
	r.box = proto.CloneOf(r.box)
	r.box.State, r.box.PauseSnapshotId, r.box.PauseSnapshotBytes = enginev1.BoxState_BOX_STATE_PAUSED, id, bytes
	// Its process may live on here, and must never be taken for one of the restored box.
	r.container, r.frozen = containerRecord{}, false
	b.Snapshot, b.record = id, &r
	return b
}

// Record is the record of the box, with its image at a path.
func (b Backed) Record(imagePath string) ([]byte, error) {
	r := *b.record
	r.image.Path = imagePath
	return r.encode()
}

// RecordName is the name of the record in the folder of a box.
const RecordName = recordName

// ValidID says whether an id is one of a box.
func ValidID(id string) bool { return validBoxID(id) }
