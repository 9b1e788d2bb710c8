package atoll.server;

import static com.tngtech.archunit.base.DescribedPredicate.alwaysTrue;
import static com.tngtech.archunit.core.domain.JavaClass.Predicates.resideInAPackage;
import static com.tngtech.archunit.lang.syntax.ArchRuleDefinition.noClasses;
import static com.tngtech.archunit.library.dependencies.SlicesRuleDefinition.slices;

import com.tngtech.archunit.core.domain.JavaClasses;
import com.tngtech.archunit.core.importer.ClassFileImporter;
import com.tngtech.archunit.core.importer.ImportOption;
import org.junit.jupiter.api.Test;

/** Arrows point inwards: server -> api -> core, and http knows nobody. */
class ArchitectureTest {
    private static final JavaClasses CLASSES = new ClassFileImporter()
            .withImportOption(new ImportOption.DoNotIncludeTests())
            .importPackages("atoll");

    @Test
    void api_sees_neither_store_nor_node_nor_server() {
        noClasses()
                .that()
                .resideInAPackage("atoll.api..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage(
                        "atoll.store..", "atoll.node..", "atoll.server..", "org.eclipse.jetty..", "io.grpc..")
                .check(CLASSES);
    }

    @Test
    void api_sees_only_what_core_offers_to_callers() {
        noClasses()
                .that()
                .resideInAPackage("atoll.api..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage("atoll.core.store..", "atoll.core.pool..")
                .check(CLASSES);
    }

    /** So a new adapter is a folder of its own: core is all that it can lean on. */
    @Test
    void adapters_see_core_and_never_each_other() {
        noClasses()
                .that()
                .resideInAPackage("atoll.compat..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage(
                        "atoll.core.store..",
                        "atoll.core.pool..",
                        "atoll.api..",
                        "atoll.store..",
                        "atoll.node..",
                        "atoll.server..",
                        "org.eclipse.jetty..",
                        "io.grpc..")
                .check(CLASSES);
        slices().matching("atoll.compat.(*)..")
                .namingSlices("$1")
                .should()
                .notDependOnEachOther()
                .ignoreDependency(alwaysTrue(), resideInAPackage("atoll.compat.shared.."))
                .check(CLASSES);
    }

    @Test
    void the_dashboard_sees_only_http_and_what_core_offers_to_callers() {
        noClasses()
                .that()
                .resideInAPackage("atoll.ui..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage(
                        "atoll.core.store..",
                        "atoll.core.pool..",
                        "atoll.api..",
                        "atoll.compat..",
                        "atoll.store..",
                        "atoll.node..",
                        "atoll.server..",
                        "org.eclipse.jetty..",
                        "io.grpc..")
                .check(CLASSES);
    }

    @Test
    void http_sees_nothing_of_atoll() {
        noClasses()
                .that()
                .resideInAPackage("atoll.http..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage("atoll.core..", "atoll.api..", "atoll.store..", "atoll.node..", "atoll.server..")
                .check(CLASSES);
    }

    @Test
    void core_sees_none_of_its_neighbours() {
        noClasses()
                .that()
                .resideInAPackage("atoll.core..")
                .should()
                .dependOnClassesThat()
                .resideInAnyPackage(
                        "atoll.http..",
                        "atoll.api..",
                        "atoll.store..",
                        "atoll.node..",
                        "atoll.server..",
                        "atoll.proto..")
                .check(CLASSES);
    }

    @Test
    void there_are_no_circles_between_modules() {
        slices().matching("atoll.(*)..").should().beFreeOfCycles().check(CLASSES);
    }
}
