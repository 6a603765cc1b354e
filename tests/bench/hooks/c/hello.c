// The tutorial's hook in C, for `cargo xtask bench guests`, with the reader of JSON that `metahook new --lang c` gives.
#include "metahook.h"

int main(void)
{
	text request = read_request();
	text parent = member(request, "parent");
	text name = string_or(member(member(parent, "metadata"), "name"), "");
	text who = string_or(member(member(parent, "spec"), "who"), "World");
	int pods = count_members(member(member(request, "children"), "Pod.v1"));
	printf("{\"status\":{\"pods\":%d},\"children\":[{\"apiVersion\":\"v1\",\"kind\":\"Pod\","
	       "\"metadata\":{\"name\":\"%.*s\"},\"spec\":{\"restartPolicy\":\"OnFailure\",\"containers\":["
	       "{\"name\":\"hello\",\"image\":\"busybox\",\"command\":[\"echo\",\"Hello, %.*s!\"]}]}}]}\n",
	       pods, TEXT(name), TEXT(who));
	return 0;
}
