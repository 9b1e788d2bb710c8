/** What translators of foreign protocols have in common: who calls, pulling ahead of a writer, sandboxes' ports as byte streams. No rules and no state. */
@NullMarked
package atoll.compat.shared;

import org.jspecify.annotations.NullMarked;
