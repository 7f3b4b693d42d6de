# Completes commands, flags and their values: sluice completion fish > ~/.config/fish/completions/sluice.fish
function __sluice_complete
    set -l current (commandline --current-token)
    set -l words (commandline --current-process --tokenize --cut-at-cursor) "$current"
    if contains -- $words[-2] --config -c --output --against --token
        __fish_complete_path "$current"
        return
    end
    if test (count $words) -gt 2; and not string match --quiet -- '-*' "$current"
        switch $words[2]
            case completion
                printf '%s\n' bash zsh fish
                return
            case replay
                __fish_complete_path "$current"
                return
        end
    end
    set -l found (env SHELL=fish sluice --get-yargs-completions $words 2>/dev/null)
    if test -n "$found"
        printf '%s\n' $found
    else
        __fish_complete_path "$current"
    end
end
complete --command sluice --no-files --arguments '(__sluice_complete)'
