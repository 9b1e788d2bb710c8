/** The port to the database. */
@NullMarked
package atoll.core.store;

import org.jspecify.annotations.NullMarked;
