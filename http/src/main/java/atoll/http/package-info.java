/**
 * HTTP for Atoll: a small layer over Jetty's core handlers. It knows routes, JSON bodies, streams, limits and deadlines, and nothing of
 * sandboxes; blocking code on virtual threads.
 */
@NullMarked
package atoll.http;

import org.jspecify.annotations.NullMarked;
