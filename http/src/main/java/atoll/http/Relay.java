package atoll.http;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Optional;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executor;
import org.eclipse.jetty.io.AbstractConnection;
import org.eclipse.jetty.io.Connection;
import org.eclipse.jetty.io.EndPoint;
import org.eclipse.jetty.util.BufferUtil;
import org.eclipse.jetty.util.Callback;
import org.eclipse.jetty.util.FutureCallback;
import org.jspecify.annotations.Nullable;

/** What a connection becomes once both of its ends have agreed on another protocol: bytes, passed on both ways until either side ends. */
final class Relay extends AbstractConnection implements Connection.UpgradeTo {
    private static final int PIECE = 32 << 10;

    private final PeerConnection peer;
    private final ByteBuffer fromPeer;
    private @Nullable ByteBuffer early;

    /** {@code fromPeer} is what the peer has sent already. */
    Relay(EndPoint endPoint, Executor executor, PeerConnection peer, ByteBuffer fromPeer) {
        super(endPoint, executor);
        this.peer = peer;
        this.fromPeer = fromPeer;
    }

    @Override
    public void onUpgradeTo(ByteBuffer arrived) {
        early = BufferUtil.copy(arrived);
    }

    @Override
    public void onOpen() {
        super.onOpen();
        Thread.ofVirtual().name("relay-out").start(this::inward);
        Thread.ofVirtual().name("relay-in").start(this::outward);
    }

    /** From the client to the server. */
    private void inward() {
        try {
            ByteBuffer first = early;
            if (first != null && first.hasRemaining()) {
                peer.send(first);
            }
            while (true) {
                ByteBuffer piece = ByteBuffer.allocate(PIECE);
                BufferUtil.clear(piece);
                int got = getEndPoint().fill(piece);
                if (got < 0) {
                    peer.end();
                    return;
                }
                if (got > 0) {
                    peer.send(piece);
                } else {
                    awaitBytes();
                }
            }
        } catch (IOException | RuntimeException e) {
            closeBoth(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            closeBoth(e);
        }
    }

    private void awaitBytes() throws IOException, InterruptedException {
        var arrived = new CountDownLatch(1);
        var failure = new Throwable[1];
        fillInterested(new Callback() {
            @Override
            public void succeeded() {
                arrived.countDown();
            }

            @Override
            public void failed(Throwable x) {
                failure[0] = x;
                arrived.countDown();
            }
        });
        arrived.await();
        if (failure[0] != null) {
            throw new IOException(failure[0]);
        }
    }

    /** From the server to the client. */
    private void outward() {
        try {
            Optional<ByteBuffer> piece = fromPeer.hasRemaining() ? Optional.of(fromPeer) : peer.receive();
            while (piece.isPresent()) {
                var written = new FutureCallback();
                getEndPoint().write(written, piece.get());
                written.block();
                piece = peer.receive();
            }
            closeBoth(null);
        } catch (IOException | RuntimeException e) {
            closeBoth(e);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            closeBoth(e);
        }
    }

    private void closeBoth(@Nullable Throwable why) {
        peer.close();
        if (why == null) {
            getEndPoint().close();
        } else {
            getEndPoint().close(why);
        }
    }

    @Override
    public void onFillable() {
        // Whoever waits for bytes brings a callback of its own.
    }

    @Override
    public void onClose(@Nullable Throwable cause) {
        super.onClose(cause);
        peer.close();
    }

    /** Sockets are quiet for as long as their users are. */
    @Override
    public boolean onIdleExpired(java.util.concurrent.TimeoutException timeout) {
        return false;
    }
}
