/** Core's store on SQL, and the secrets beside it. */
@NullMarked
package atoll.store;

import org.jspecify.annotations.NullMarked;
