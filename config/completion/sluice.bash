# Completes commands, flags and their values. Into ~/.bashrc: source <(sluice completion bash)
_sluice() {
  local words=("${COMP_WORDS[@]:0:COMP_CWORD+1}")
  local found
  found=$(SHELL=bash sluice --get-yargs-completions "${words[@]}" 2>/dev/null)
  COMPREPLY=($(compgen -W "$found" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _sluice sluice
