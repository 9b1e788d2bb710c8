package atoll.node;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.core.ErrorCode;
import io.grpc.Status;
import java.nio.channels.ClosedChannelException;
import org.junit.jupiter.api.Test;

/** What an engine says, in its own words. */
class StatusesTest {
    private static ErrorCode ofSnapshot(Status status, String said) {
        return Statuses.ofSnapshot(status.withDescription(said), "restore of a sandbox")
                .code();
    }

    private static ErrorCode ofAny(Status status, String said) {
        return Statuses.failure(status.withDescription(said), "pause of a sandbox")
                .code();
    }

    @Test
    void a_snapshot_that_is_not_there_is_told_from_a_box_that_is_not() {
        assertThat(ofSnapshot(Status.NOT_FOUND, "snapshot snap-1 is not on this node"))
                .isEqualTo(ErrorCode.SNAPSHOT_NOT_FOUND);
        assertThat(ofSnapshot(Status.NOT_FOUND, "box box-1 does not exist")).isEqualTo(ErrorCode.NOT_FOUND);
    }

    @Test
    void what_can_not_be_restored_is_told_from_a_box_that_does_not_allow_it() {
        for (String said : new String[] {
            "snapshot snap-1 can't be restored: its build of the runtime is not here",
            "snapshot snap-1 was not made of box box-1",
            "box box-1 is not resumed, it is still paused: agent 0123, which it was made with, is not on this node",
            "snapshot snap-1: the snapshot can't be used: it was changed since it was made: size",
        }) {
            assertThat(ofSnapshot(Status.FAILED_PRECONDITION, said)).isEqualTo(ErrorCode.SNAPSHOT_UNUSABLE);
        }
        assertThat(ofSnapshot(Status.NOT_FOUND, "image 0123 is not on this node"))
                .isEqualTo(ErrorCode.SNAPSHOT_UNUSABLE);
        for (String said : new String[] {
            "box box-1 has ended: its snapshot is not on the disk any more",
            "box box-1 is not paused",
            "metadata atoll-epoch: 1 (expected: 2, the epoch of the last Claim)",
        }) {
            assertThat(ofSnapshot(Status.FAILED_PRECONDITION, said)).isEqualTo(ErrorCode.CONFLICT);
        }
    }

    @Test
    void what_a_failed_step_printed_is_a_reason_and_no_part_of_the_message() {
        var failed = Statuses.ofImage(
                Status.FAILED_PRECONDITION.withDescription("step 2 of 3 failed (line 2: RUN x): exit code 1\none\ntwo"),
                "image mine@1",
                true);
        assertThat(failed.code()).isEqualTo(ErrorCode.BUILD_STEP_FAILED);
        assertThat(failed.message()).isEqualTo("image mine@1: step 2 of 3 failed (line 2: RUN x): exit code 1");
        assertThat(failed.reason()).endsWith("\none\ntwo");
    }

    @Test
    void a_connection_that_breaks_while_a_call_is_written_means_that_the_node_is_away() {
        Status closed = Status.UNKNOWN.withCause(new ClosedChannelException());
        assertThat(ofAny(closed, "channel closed")).isEqualTo(ErrorCode.NODE_UNAVAILABLE);
        assertThat(ofSnapshot(closed, "channel closed")).isEqualTo(ErrorCode.NODE_UNAVAILABLE);
        assertThat(ofAny(Status.UNKNOWN, "channel closed")).isEqualTo(ErrorCode.INTERNAL);
        assertThat(ofAny(Status.UNKNOWN.withCause(new IllegalStateException()), "a bug"))
                .isEqualTo(ErrorCode.INTERNAL);
    }

    @Test
    void what_a_runtime_can_not_do_is_told_from_a_call_that_an_engine_does_not_know() {
        assertThat(ofAny(Status.UNIMPLEMENTED, "the runtime docker can't do it: a pause"))
                .isEqualTo(ErrorCode.UNSUPPORTED_BY_RUNTIME);
        assertThat(ofSnapshot(Status.UNIMPLEMENTED, "the runtime docker can't do it: a snapshot with memory"))
                .isEqualTo(ErrorCode.UNSUPPORTED_BY_RUNTIME);
        assertThat(ofAny(Status.UNIMPLEMENTED, "Method not found")).isEqualTo(ErrorCode.INTERNAL);
    }

    @Test
    void a_full_disk_is_told_from_a_full_node() {
        String room = "snapshot of 300 MiB does not fit on the disk of /var/lib/atoll: 100 of 1000 MiB are free";
        assertThat(ofAny(Status.RESOURCE_EXHAUSTED, room)).isEqualTo(ErrorCode.DISK_FULL);
        assertThat(ofAny(Status.RESOURCE_EXHAUSTED, "snapshot snap-1: write pages.img: no space left on device"))
                .isEqualTo(ErrorCode.DISK_FULL);
        assertThat(ofSnapshot(Status.RESOURCE_EXHAUSTED, "no memory left for a box"))
                .isEqualTo(ErrorCode.NODE_FULL);
    }
}
