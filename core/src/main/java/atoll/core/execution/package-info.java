/** Running code: requests, the updates while it runs, its outcome and its record. */
@NullMarked
package atoll.core.execution;

import org.jspecify.annotations.NullMarked;
