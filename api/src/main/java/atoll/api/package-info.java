/** The native API: routes, their JSON and the errors, over core's interfaces. No rules of its own. */
@NullMarked
package atoll.api;

import org.jspecify.annotations.NullMarked;
