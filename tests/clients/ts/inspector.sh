#!/usr/bin/env bash
# The command line of the inspector 2.12, by hand: npm install --no-save @modelcontextprotocol/inspector@2.12.0 here, then
# inspector.sh URL legacy|auto|modern
# Each line is a method with the inspector's exit code; `fails` counts those that are not as they should be.
set -u
cd "$(dirname "$0")" || exit 1
url=$1 era=${2:-legacy} fails=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export MCP_CATALOG_PATH=$scratch/catalog.json

inspect() { # inspect NAME EXIT-CODE ARGUMENTS...
    local name=$1 wanted=$2 said code
    shift 2
    said=$(node_modules/.bin/mcp-inspector --cli "$url" --transport http --protocol-era "$era" --format json -q "$@" 2>&1)
    code=$?
    [ "$code" = "$wanted" ] || fails=$((fails + 1))
    echo "$code $name: $(tr '\n' ' ' <<<"$said" | cut -c1-150)"
}

inspect tools/list 0 --method tools/list
inspect 'tools/list --strict' 0 --method tools/list --strict
inspect tools/call 0 --method tools/call --tool-name test_simple_text
inspect 'a tool that fails' 5 --method tools/call --tool-name test_error_handling
inspect resources/list 0 --method resources/list
inspect resources/read 0 --method resources/read --uri test://static-text
inspect resources/templates/list 0 --method resources/templates/list
inspect prompts/list 0 --method prompts/list
inspect prompts/get 0 --method prompts/get --prompt-name test_prompt_with_arguments --prompt-args arg1=a arg2=b
[ "$era" = legacy ] && inspect logging/setLevel 0 --method logging/setLevel --log-level debug
inspect 'tools/call under load' 0 --method tools/call --tool-name test_simple_text --load --load-duration 3 --load-concurrency 10
echo "fails=$fails"
[ "$fails" = 0 ]
