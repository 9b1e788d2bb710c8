package atoll.core;

import static com.tngtech.archunit.core.domain.JavaClass.Predicates.belongToAnyOf;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAnyPackage;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.classes;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;

import com.tngtech.archunit.core.importer.ImportOption;
import com.tngtech.archunit.junit.AnalyzeClasses;
import com.tngtech.archunit.junit.ArchTest;
import com.tngtech.archunit.lang.ArchRule;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;

@AnalyzeClasses(packages = "atoll.core", importOptions = ImportOption.DoNotIncludeTests.class)
class ArchitectureTest {
    /** A new name here is a design change: core holds rules, and rules need no libraries. */
    @ArchTest
    static final ArchRule core_uses_the_language_and_nothing_else = classes()
            .should()
            .onlyDependOnClassesThat(resideInAnyPackage(
                            "atoll.core..",
                            "java.lang..",
                            "java.util..",
                            "java.time..",
                            "java.math..",
                            "java.nio",
                            "java.nio.charset..",
                            "java.security..",
                            "javax.crypto..",
                            "org.jspecify.annotations..",
                            "com.google.errorprone.annotations..")
                    // Bytes on their way through core, never a file of the host.
                    .or(belongToAnyOf(InputStream.class, IOException.class, UncheckedIOException.class)));

    @ArchTest
    static final ArchRule ports_know_no_rules = noClasses()
            .that()
            .resideInAnyPackage("atoll.core.store..", "atoll.core.text..")
            .should()
            .dependOnClassesThat()
            .resideInAnyPackage("atoll.core.pool..");

    @ArchTest
    static final ArchRule the_pool_knows_no_sandboxes = noClasses()
            .that()
            .resideInAPackage("atoll.core.pool..")
            .should()
            .dependOnClassesThat()
            .resideInAnyPackage("atoll.core.sandbox..", "atoll.core.execution..", "atoll.core.store..");
}
