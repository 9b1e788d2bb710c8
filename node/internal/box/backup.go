package box

import (
	"atoll/node/gen/enginev1"
)

// Backed is a paused box as it stands in a backup.
type Backed struct {
	ID string
	// Snapshot is what it was paused to.
	Snapshot string
	// ImageDigest is of the image that it is made of.
	ImageDigest string
	// record is of this box, paused, without what it has on a machine.
	record *record
}

// Backup reads the record of a box for a backup. It returns false for a box that is not paused, and for a container of another box. What is on its way
// into or out of a pause counts as paused: whether its snapshot is there decides.
func Backup(text []byte) (Backed, bool, error) {
	r, err := decodeRecord(text)
	if err != nil || r.owner != "" || r.build || r.box.GetPauseSnapshotId() == "" {
		return Backed{}, false, err
	}
	switch r.box.GetState() {
	case enginev1.BoxState_BOX_STATE_PAUSING, enginev1.BoxState_BOX_STATE_PAUSED, enginev1.BoxState_BOX_STATE_RESUMING:
	default:
		return Backed{}, false, nil
	}
	r.box.State = enginev1.BoxState_BOX_STATE_PAUSED
	// Its process may live on here, and must never be taken for one of the restored box.
	r.container, r.frozen = containerRecord{}, false
	return Backed{ID: r.box.GetBoxId(), Snapshot: r.box.GetPauseSnapshotId(), ImageDigest: r.box.GetSpec().GetImageDigest(), record: r}, true, nil
}

// Record is the record of the restored box, with its image at a path.
func (b Backed) Record(imagePath string) ([]byte, error) {
	r := *b.record
	r.image.Path = imagePath
	return r.encode()
}

// RecordName is the name of the record in the folder of a box.
const RecordName = recordName

// ValidID says whether an id is one of a box.
func ValidID(id string) bool { return validBoxID(id) }
