// The plugin of the bench: `look…` reads the file that it names through the host, `call…` asks the host for next to nothing (to close
// what is not open), every other tool gives its text back.
#include "yoi.h"

static yoi_text on_start(yoi_text config) {
  (void)config;
  return YOI_TEXT("{\"state\":\"ready\",\"data\":null}");
}

static yoi_text on_tool(yoi_text name, yoi_text input) {
  yoi_text text;
  yoi_text which = {name.at, name.size < 4 ? name.size : 4};
  if (yoi_is(which, YOI_TEXT("look"))) return yoi_output(YOI_TEXT("read"), yoi_read(input));
  if (yoi_is(which, YOI_TEXT("call"))) return yoi_output(YOI_TEXT("asked"), yoi_close(1));
  if (!yoi_member(input, YOI_TEXT("text"), &text)) return yoi_error(YOI_TEXT("invalid_input"), YOI_TEXT("text is missing"));
  return yoi_output(YOI_TEXT("echo"), text);
}

static yoi_text on_ingress(yoi_text name, yoi_text event) {
  (void)name;
  (void)event;
  return YOI_TEXT("{\"accepted\":true}");
}

static yoi_text on_status(void) { return YOI_TEXT("{\"state\":\"running\"}"); }
static yoi_text on_stop(void) { return YOI_TEXT("{\"state\":\"stopped\"}"); }
