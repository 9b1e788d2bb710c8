package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"atoll/node/internal/image"
)

// build does what was planned.
func (r *run) build(ctx context.Context) (image.Image, error) {
	target := r.stages[r.target]
	needed := map[*stage]int{}
	r.need(target, needed)
	for _, s := range r.ordered() {
		hit, runs := needed[s]
		if err := r.runStage(ctx, s, hit, runs, needed); err != nil {
			return image.Image{}, err
		}
	}
	return r.result(ctx, target)
}

// need finds out which stages have something to run, and after which of their operations; -1: from the beginning.
func (r *run) need(s *stage, needed map[*stage]int) {
	if _, seen := needed[s]; seen {
		return
	}
	hit := -1
	if !r.spec.NoCache {
		for i := range slices.Backward(s.ops) {
			if r.builder.Cache.has(s.ops[i].key) {
				hit = i
				break
			}
		}
	}
	needed[s] = hit
	for _, o := range s.ops[hit+1:] {
		for _, other := range o.needs {
			r.need(other, needed)
		}
	}
	if hit < 0 && s.parent != nil && len(s.ops) > 0 {
		r.need(s.parent, needed)
	} else if len(s.ops) == 0 && s.parent != nil {
		r.need(s.parent, needed)
	}
}

// runStage runs the steps of a stage that have no result yet. Those of a stage that nothing needs are only told of.
func (r *run) runStage(ctx context.Context, s *stage, hit int, runs bool, needed map[*stage]int) (err error) {
	var box Sandbox
	kept := false
	defer func() {
		if box != nil && !kept {
			err = errors.Join(err, box.Close())
		}
	}()
	number := -1 // of the operation
	for i, step := range s.steps {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		told := step.Step
		switch {
		case step.op != nil:
			number++
			told.Cached = !runs || number <= hit
		case i == 0:
			told.Cached = !runs || len(s.ops) > 0 && hit >= 0
		default:
			told.Cached = !runs
		}
		step.Step = told
		r.emit(told)
		if step.op == nil || told.Cached {
			continue
		}
		if box == nil {
			if box, err = r.boxAt(ctx, s, number-1); err != nil {
				return err
			}
		}
		if err := step.op.do(ctx, r, box); err != nil {
			return r.explain(err, step)
		}
		r.save(ctx, box, step.op)
	}
	// What others take files from, or what the image is made of, is needed once more.
	if box != nil && (s.number == r.target || r.isSource(s, needed)) {
		r.sources[s], kept = box, true
	}
	return nil
}

// isSource says whether a later stage takes files from this one.
func (r *run) isSource(s *stage, needed map[*stage]int) bool {
	for other, hit := range needed {
		for _, o := range other.ops[hit+1:] {
			if slices.Contains(o.needs, s) {
				return true
			}
		}
	}
	return false
}

func (r *run) explain(err error, st *step) error {
	var known *StepError
	if errors.As(err, &known) {
		return err
	}
	var wrong *InvalidError
	if errors.As(err, &wrong) {
		if wrong.Line == 0 {
			wrong.Line = st.line
		}
		return err
	}
	return &StepError{Step: st.Step, Line: st.line, Text: err.Error()}
}

// save keeps what an operation made. Without it the build goes on all the same.
func (r *run) save(ctx context.Context, box Sandbox, o *op) {
	if ctx.Err() != nil {
		return
	}
	if r.spec.NoCache {
		r.builder.Cache.remove(o.key)
	}
	if err := box.Save(ctx, o.key.snapshot()); err != nil {
		if ctx.Err() == nil {
			r.builder.Logger.Warn("a build's step is not kept", "step", o.step.Number, "error", err)
		}
		return
	}
	r.builder.Cache.saved(o.key)
}

// boxAt is a new box with the files that a stage has after an operation; -1: before the first. What has no snapshot, or one that turns out
// to be of no use, is made anew.
func (r *run) boxAt(ctx context.Context, s *stage, number int) (box Sandbox, err error) {
	at := number
	for ; at >= 0 && box == nil; at-- {
		k := s.ops[at].key
		if !r.builder.Cache.has(k) {
			continue
		}
		box, err = r.builder.Sandboxes.Restore(ctx, k.snapshot(), r.spec.Limits)
		switch {
		case err == nil:
			at++ // it stands after this one
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, ErrNoSnapshot):
			r.builder.Logger.Warn("a build's snapshot is of no use", "snapshot", k.snapshot(), "error", err)
			r.builder.Cache.remove(k)
			box = nil
		default:
			return nil, err
		}
	}
	if box == nil {
		at = -1
		if s.parent != nil {
			box, err = r.boxAt(ctx, s.parent, len(s.parent.ops)-1)
		} else {
			box, err = r.builder.Sandboxes.Start(ctx, s.base.Metadata.Digest, r.spec.Limits)
		}
		if err != nil {
			return nil, err
		}
	}
	for _, o := range s.ops[at+1 : number+1] {
		r.emit(Log{Data: fmt.Appendf(nil, "once more: %s\n", shorten(o.step.Text, 200)), Stderr: true})
		if err := o.do(ctx, r, box); err != nil {
			return nil, errors.Join(r.explain(err, o.step), box.Close())
		}
		r.save(ctx, box, o)
	}
	return box, nil
}

// source is a box that --from takes files from.
func (r *run) source(ctx context.Context, from *origin) (Sandbox, error) {
	if s := from.stage; s != nil {
		if box := r.sources[s]; box != nil {
			return box, nil
		}
		box, err := r.boxAt(ctx, s, len(s.ops)-1)
		if err == nil {
			r.sources[s] = box
		}
		return box, err
	}
	digest := from.image.Metadata.Digest
	if box := r.imageSources[digest]; box != nil {
		return box, nil
	}
	box, err := r.builder.Sandboxes.Start(ctx, digest, r.spec.Limits)
	if err == nil {
		r.imageSources[digest] = box
	}
	return box, err
}

// changed says whether a stage, or one that it begins with, changes any files.
func (s *stage) changed() bool { return len(s.ops) > 0 || s.parent != nil && s.parent.changed() }

// result makes the image.
func (r *run) result(ctx context.Context, target *stage) (image.Image, error) {
	config := target.state.config
	assembly := Assembly{Name: r.spec.Name, Source: r.spec.Source, Base: &target.base, Config: config}
	if !target.changed() {
		return r.builder.Images.Assemble(ctx, assembly)
	}
	box, err := r.source(ctx, &origin{stage: target})
	if err != nil {
		return image.Image{}, err
	}
	r.emit(Progress{What: "writing the image"})
	reader, writer := io.Pipe()
	exported := make(chan error, 1)
	go func() {
		// A file may say that it is larger than all that its sandbox could write.
		limit := int64(min(4*r.spec.Limits.GetDiskBytes(), 1<<62))
		err := box.Export(ctx, &countingWriter{writer, limit})
		if errors.Is(err, errTooMuch) {
			err = invalid(0, "the image's files have more than %d MiB: four times the disk of build sandboxes", limit>>20)
		}
		writer.CloseWithError(err)
		exported <- err
	}()
	assembly.Changes = reader
	made, err := r.builder.Images.Assemble(ctx, assembly)
	reader.CloseWithError(errReaderGone)
	if failed := <-exported; failed != nil && !errors.Is(failed, errReaderGone) {
		return image.Image{}, failed
	}
	return made, err
}

// close ends the boxes that the build still has.
func (r *run) close() {
	for _, box := range r.imageSources {
		r.closeBox(box)
	}
	for _, box := range r.sources {
		r.closeBox(box)
	}
	r.context.close()
	for _, file := range r.files {
		file.Close()
	}
}

func (r *run) closeBox(box Sandbox) {
	if err := box.Close(); err != nil {
		r.builder.Logger.Error("a build sandbox is not gone", "error", err)
	}
}
