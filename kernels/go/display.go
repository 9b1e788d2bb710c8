package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"reflect"
	"sort"
	"strconv"
	"strings"
	"unicode/utf8"
)

// richValue is what package atoll/display makes: a value with its representations by MIME type. A string is text, bytes are sent in
// base64, anything else as JSON.
type richValue struct {
	data map[string]any
	err  error
}

func rich(mime string, content any) richValue { return richValue{data: map[string]any{mime: content}} }

func displaySymbols(show reflect.Value) map[string]reflect.Value {
	text := func(mime string) reflect.Value {
		return reflect.ValueOf(func(content string) richValue { return rich(mime, content) })
	}
	binary := func(mime string) reflect.Value {
		return reflect.ValueOf(func(content []byte) richValue { return rich(mime, content) })
	}
	return map[string]reflect.Value{
		"Show":     show,
		"HTML":     text("text/html"),
		"Markdown": text("text/markdown"),
		"Latex":    text("text/latex"),
		"SVG":      text("image/svg+xml"),
		"Text":     text("text/plain"),
		"PNG":      binary("image/png"),
		"JPEG":     binary("image/jpeg"),
		"GIF":      binary("image/gif"),
		"PDF":      binary("application/pdf"),
		"JSON":     reflect.ValueOf(func(value any) richValue { return rich("application/json", jsonValue{value}) }),
		"Image":    reflect.ValueOf(pictureOf),
		"MIME":     reflect.ValueOf(func(data map[string]any) richValue { return richValue{data: data} }),
		"Value":    reflect.ValueOf((*richValue)(nil)),
	}
}

// jsonValue is shown as what it is, not as the text that a string would be.
type jsonValue struct{ value any }

func pictureOf(picture image.Image) richValue {
	if picture == nil {
		return richValue{err: fmt.Errorf("display.Image: nil (expected: an image)")}
	}
	var file bytes.Buffer
	if err := png.Encode(&file, picture); err != nil {
		return richValue{err: fmt.Errorf("display.Image: %w", err)}
	}
	return rich("image/png", file.Bytes())
}

// bundle is a value as MIME types; truncated says how many bytes of it were left out.
func bundle(value any) (data map[string]any, truncated int) {
	if picture, ok := value.(image.Image); ok {
		value = pictureOf(picture)
	}
	r, ok := value.(richValue)
	if pointer, isPointer := value.(*richValue); isPointer && pointer != nil {
		r, ok = *pointer, true
	}
	if !ok {
		text, left := cut(format(value))
		return map[string]any{"text/plain": text}, left
	}
	if r.err != nil {
		return map[string]any{"text/plain": r.err.Error()}, 0
	}
	data = map[string]any{}
	for mime, content := range r.data {
		switch content := content.(type) {
		case []byte:
			if strings.HasPrefix(mime, "text/") || mime == "image/svg+xml" {
				data[mime] = strings.ToValidUTF8(string(content), "\uFFFD")
			} else {
				data[mime] = base64.StdEncoding.EncodeToString(content)
			}
		case string:
			data[mime] = strings.ToValidUTF8(content, "\uFFFD")
		default:
			if inner, ok := content.(jsonValue); ok {
				content = inner.value
			}
			raw, err := json.Marshal(content)
			if err != nil {
				data["text/plain"] = fmt.Sprintf("%s: %v", mime, err)
				continue
			}
			data[mime] = json.RawMessage(raw)
		}
	}
	if text, ok := data["text/plain"].(string); ok {
		data["text/plain"], truncated = cut(text)
	} else if len(data) > 0 {
		data["text/plain"] = "<" + strings.Join(sortedKeys(data), ", ") + ">"
	}
	return data, truncated
}

func sortedKeys(data map[string]any) []string {
	var keys []string
	for key := range data {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// cut ends a text at 1 MiB, between two characters.
func cut(text string) (string, int) {
	if len(text) <= maxTextBytes {
		return text, 0
	}
	end := maxTextBytes
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end], len(text) - end
}

const deepestFormat = 16

// format writes a value as Go would be read: strings in quotes, fields with their names.
func format(value any) string {
	var text strings.Builder
	write(&text, reflect.ValueOf(value), 0)
	return strings.ToValidUTF8(text.String(), "\uFFFD")
}

func write(text *strings.Builder, v reflect.Value, depth int) {
	if text.Len() > 2*maxTextBytes {
		return
	}
	if !v.IsValid() {
		text.WriteString("<nil>")
		return
	}
	if v.CanInterface() && v.Kind() != reflect.Interface && !(v.Kind() == reflect.Pointer && v.IsNil()) {
		switch shown := v.Interface().(type) {
		case error:
			text.WriteString(shown.Error())
			return
		case fmt.Stringer:
			text.WriteString(shown.String())
			return
		case fmt.Formatter:
			fmt.Fprintf(text, "%v", shown)
			return
		}
	}
	if depth > deepestFormat {
		text.WriteString("…")
		return
	}
	switch v.Kind() {
	case reflect.String:
		text.WriteString(strconv.Quote(v.String()))
	case reflect.Interface:
		if v.IsNil() {
			text.WriteString("<nil>")
		} else {
			write(text, v.Elem(), depth)
		}
	case reflect.Pointer:
		if !v.IsNil() && v.Elem().Kind() == reflect.Struct {
			text.WriteByte('&')
			write(text, v.Elem(), depth+1)
		} else {
			fmt.Fprintf(text, "%v", v)
		}
	case reflect.Struct:
		text.WriteByte('{')
		for i := range v.NumField() {
			if i > 0 {
				text.WriteByte(' ')
			}
			text.WriteString(v.Type().Field(i).Name + ":")
			write(text, v.Field(i), depth+1)
		}
		text.WriteByte('}')
	case reflect.Slice, reflect.Array:
		text.WriteByte('[')
		for i := range v.Len() {
			if i > 0 {
				text.WriteByte(' ')
			}
			write(text, v.Index(i), depth+1)
			if text.Len() > 2*maxTextBytes {
				return
			}
		}
		text.WriteByte(']')
	case reflect.Map:
		text.WriteString("map[")
		type entry struct {
			key   string
			value reflect.Value
		}
		var entries []entry
		for each := v.MapRange(); each.Next(); {
			var key strings.Builder
			write(&key, each.Key(), depth+1)
			entries = append(entries, entry{key.String(), each.Value()})
		}
		switch {
		case v.Type().Key().Kind() >= reflect.Int && v.Type().Key().Kind() <= reflect.Float64:
			sort.Slice(entries, func(i, j int) bool {
				a, _ := strconv.ParseFloat(entries[i].key, 64)
				b, _ := strconv.ParseFloat(entries[j].key, 64)
				return a < b
			})
		default:
			sort.Slice(entries, func(i, j int) bool { return entries[i].key < entries[j].key })
		}
		for i, e := range entries {
			if i > 0 {
				text.WriteByte(' ')
			}
			text.WriteString(e.key + ":")
			write(text, e.value, depth+1)
		}
		text.WriteByte(']')
	case reflect.Func:
		text.WriteString(v.Type().String())
	default:
		fmt.Fprintf(text, "%v", v)
	}
}
