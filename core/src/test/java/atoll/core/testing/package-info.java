/** Fakes of core's ports, and the contract suites that the fakes and the real ones pass alike. */
@NullMarked
package atoll.core.testing;

import org.jspecify.annotations.NullMarked;
