package atoll.compat.e2b;

import static org.assertj.core.api.Assertions.assertThat;

import atoll.http.Json;
import java.nio.charset.StandardCharsets;
import org.junit.jupiter.api.Test;
import tools.jackson.databind.node.JsonNodeFactory;
import tools.jackson.databind.node.ObjectNode;

class ResultFormsTest {
    private static String forms(String bundle) {
        ObjectNode line = JsonNodeFactory.instance.objectNode();
        byte[] bytes = bundle.replace('\'', '"').getBytes(StandardCharsets.UTF_8);
        ResultForms.put(line, Json.parse(bytes, bytes.length));
        return line.toString().replace('"', '\'');
    }

    @Test
    void known_types_have_a_field_of_their_own_and_others_are_extra() {
        assertThat(forms("{'text/plain':'1','text/html':'<b>','application/javascript':'f()','application/x-own':[1]}"))
                .isEqualTo("{'text':'1','html':'<b>','javascript':'f()','extra':{'application/x-own':[1]}}");
    }

    @Test
    void a_chart_has_every_key_of_its_kind() {
        String axis = "{'label':'X (s)','unit':'s','scale':'log','ticks':[1,2],'tick_labels':['1','2'],'more':1}";
        String line = "{'type':'line','title':'T','x_axis':" + axis
                + ",'y_axis':{},'elements':[{'label':'L','points':[[1,2]],'points_total':9}]}";
        assertThat(forms("{'application/vnd.atoll.chart.v1+json':" + line + "}"))
                .isEqualTo("{'chart':{'type':'line','title':'T','elements':[{'label':'L','points':[[1,2]]}],"
                        + "'x_label':'X (s)','x_unit':'s','x_ticks':[1,2],'x_tick_labels':['1','2'],'x_scale':'log',"
                        + "'y_label':null,'y_unit':null,'y_ticks':[],'y_tick_labels':[],'y_scale':'linear'}}");
    }

    @Test
    void boxes_and_charts_of_charts_have_this_protocols_names() {
        String box = "{'type':'box','title':null,'elements':[{'label':'a','min':1,'first_quartile':2,'median':3,"
                + "'third_quartile':4,'max':5,'outliers':[9]}]}";
        String all = "{'type':'superchart','title':'S','elements':[" + box
                + ",{'type':'pie','title':'P','elements':[{'label':'u','angle':90,'radius':1}]}]}";
        assertThat(forms("{'application/vnd.atoll.chart.v1+json':" + all + "}"))
                .isEqualTo("{'chart':{'type':'superchart','title':'S','elements':["
                        + "{'type':'box_and_whisker','title':null,'elements':[{'label':'a','min':1,'first_quartile':2,"
                        + "'median':3,'third_quartile':4,'max':5,'outliers':[9]}],"
                        + "'x_label':null,'x_unit':null,'y_label':null,'y_unit':null},"
                        + "{'type':'pie','title':'P','elements':[{'label':'u','angle':90,'radius':1}]}]}}");
    }

    @Test
    void a_table_is_columns_by_name_unless_it_was_cut() {
        String columns = "'columns':[{'name':'a','type':'int','values':[1,2]},{'name':'b','values':['x',null]}]";
        assertThat(forms("{'application/vnd.atoll.table.v1+json':{" + columns + ",'truncated':false}}"))
                .isEqualTo("{'data':{'a':[1,2],'b':['x',null]}}");
        assertThat(forms("{'application/vnd.atoll.table.v1+json':{" + columns + ",'truncated':true}}"))
                .startsWith("{'extra':{'application/vnd.atoll.table.v1+json':{'columns'");
    }
}
