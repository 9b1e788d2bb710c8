/** What every part of the server speaks of: ids, callers, errors, pages. Starts with {@link atoll.core.Atoll}. */
@NullMarked
package atoll.core;

import org.jspecify.annotations.NullMarked;
